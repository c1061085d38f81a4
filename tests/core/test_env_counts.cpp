// Tests that the seed of an env's next episode depends only on the requested resets, not on discarded resets in
// advance, nor on a change of worker.
#include <vector>

#include "check.hpp"
#include "worker/env_counts.hpp"

using namespace remuda;

namespace {

constexpr std::uint64_t kBase = 7;

struct Envs {
  Progress progress[2] = {};
  EnvCounts counts{progress};
};

}  // namespace

TEST(an_episode_begins_with_no_steps) {
  Envs envs;
  CHECK(!envs.counts.has_begun(1));
  envs.counts.begin_episode(1);
  envs.counts.count_step(1);
  envs.counts.count_step(1);
  CHECK(envs.counts.has_begun(1) && envs.counts.steps(1) == 2);
  envs.counts.begin_episode(1);
  CHECK_EQ(envs.counts.steps(1), 0U);
  CHECK(!envs.counts.has_begun(0));
}

TEST(each_episode_has_the_seed_of_its_number) {
  Envs envs;
  for (std::uint64_t n = 0; n < 3; ++n) {
    envs.counts.begin_episode(0);
    CHECK_EQ(envs.counts.seed_of_episode(0, kBase), n);
    envs.counts.note_seed(0, kBase, n);
  }
  EnvCounts successor(envs.progress);
  successor.begin_episode(0);
  CHECK_EQ(successor.seed_of_episode(0, kBase), 3U);
}

TEST(another_base_counts_from_the_start) {
  Envs envs;
  for (std::uint64_t n = 0; n < 3; ++n) {
    envs.counts.begin_episode(0);
    envs.counts.note_seed(0, kBase, n);
  }
  envs.counts.begin_episode(0);
  CHECK(envs.counts.seed_of_episode(0, kBase + 1) == 0 && envs.counts.next_seed(0, kBase + 1) == 0);
  envs.counts.note_seed(0, kBase + 1, 0);
  envs.counts.begin_episode(0);
  CHECK_EQ(envs.counts.seed_of_episode(0, kBase + 1), 1U);
}

TEST(where_few_episodes_have_a_seed_the_others_take_none) {
  Envs envs;
  std::vector<std::uint64_t> seeds;
  for (int reset = 0; reset < 6; ++reset) {
    envs.counts.begin_episode(0);
    if (reset % 2 != 0) continue;
    seeds.push_back(envs.counts.next_seed(0, kBase));
    envs.counts.note_seed(0, kBase, seeds.back());
  }
  CHECK(seeds == (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST(a_reset_that_is_thrown_away_takes_no_seed) {
  Envs envs;
  envs.counts.begin_episode(0);
  envs.counts.note_seed(0, kBase, 0);
  for (std::uint64_t n = 1; n < 4; ++n) {
    const EnvCounts::Seeds before = envs.counts.seeds(0);
    envs.counts.begin_episode(0);  // a reset in advance
    CHECK_EQ(envs.counts.seed_of_episode(0, kBase), n);
    envs.counts.note_seed(0, kBase, n);
    envs.counts.give_back(0, before);  // the reset in advance is discarded
    envs.counts.begin_episode(0);
    CHECK_EQ(envs.counts.seed_of_episode(0, kBase), n);
    envs.counts.note_seed(0, kBase, n);
  }
}

TEST(where_few_have_one_the_seed_of_a_reset_that_is_thrown_away_is_the_next_one) {
  Envs envs;
  for (std::uint64_t n = 0; n < 3; ++n) {
    for (int thrown_away = 0; thrown_away < 2; ++thrown_away) {
      const EnvCounts::Seeds before = envs.counts.seeds(0);
      envs.counts.begin_episode(0);
      envs.counts.note_seed(0, kBase, envs.counts.next_seed(0, kBase));
      envs.counts.give_back(0, before);
    }
    envs.counts.begin_episode(0);
    CHECK_EQ(envs.counts.next_seed(0, kBase), n);
    envs.counts.note_seed(0, kBase, n);
    const EnvCounts::Seeds before = envs.counts.seeds(0);
    envs.counts.begin_episode(0);  // a reset without a seed, which is discarded
    envs.counts.give_back(0, before);
  }
}
