// The results of a vector env's sub-envs come out together and in order, whatever comes between them.
#include "check.hpp"
#include "pool/sub_env_results.hpp"
#include "results.hpp"

using namespace remuda;

namespace {

Result result(std::uint32_t env, std::uint32_t count) { return result_of(env, env, count); }

}  // namespace

TEST(sub_envs_are_held_until_all_have_come) {
  SubEnvResults held(4);
  CHECK(held.is_next(result(4, 1)));
  CHECK(held.add(result(4, 1)).empty());
  CHECK(held.add(result(5, 2)).empty());
  const auto all = held.add(result(7, 1));
  CHECK_EQ(all.size(), 3u);
  CHECK(all[0].env == 4 && all[1].env == 5 && all[2].env == 7);
  CHECK(held.is_next(result(0, 1)));
}

TEST(only_the_next_sub_env_of_the_same_vector_follows) {
  SubEnvResults held(4);
  CHECK(!held.is_next(result(5, 1)));  // the second
  CHECK(!held.is_next(result(6, 3)));  // of two vector envs
  held.add(result(4, 2));
  CHECK(held.is_next(result(6, 1)) && held.is_next(result(6, 2)));
  CHECK(!held.is_next(result(5, 1)) && !held.is_next(result(7, 1)) && !held.is_next(result(6, 3)));
  CHECK(!held.is_next(result(10, 1)));  // of another vector env
  CHECK(!held.is_next(result(8, 4)));   // a whole one
  held.clear();
  CHECK(held.is_next(result(8, 4)) && held.is_next(result(8, 8)) && !held.is_next(result(6, 1)));
}

TEST(single_envs_are_whole) {
  SubEnvResults held(1);
  for (std::uint32_t env : {3, 0, 7}) {
    CHECK(held.is_next(result(env, 1)));
    CHECK_EQ(held.add(result(env, 1)).size(), 1u);
  }
}
