// Tests that the results that the pool makes have the env's last observation, reward 0, and the right flags.
#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/slots/last_results.hpp"

using namespace remuda;

namespace {

// Two envs. Their observations and terminal observations have two leaves of 8 bytes, and there is one computed column.
struct Pool {
  Pool() : memory(1, 2, 2, 5, true), results(memory.plan, columns({0, 1, 2, 3, 5, 6}), columns({7, 8}), columns({9})) {}

  std::vector<LastResults::Rows> columns(std::initializer_list<std::size_t> indices) {
    std::vector<LastResults::Rows> rows;
    for (std::size_t c : indices) {
      // A flag is one byte. The arena has 8 bytes for each, because all columns of a PlannedArena have equal rows.
      const bool is_flag = c == kTerminated || c == kTruncated;
      rows.push_back({memory.arena->at<std::byte>(memory.plan.columns[c]), is_flag ? 1U : 8U});
    }
    return rows;
  }
  template <class T>
  T& at(std::size_t column, std::uint32_t row) {
    return *reinterpret_cast<T*>(columns({column})[0].row(row));
  }
  // Writes and counts a result as the env's worker does.
  void write_result(std::uint32_t env, std::uint64_t leaf, bool terminated) {
    const std::uint32_t row = memory.plan.kept_row(env, results.results(env) + 1);
    at<double>(kReward, row) = 7.0;
    at<bool>(kTerminated, row) = terminated;
    at<bool>(kTruncated, row) = false;
    at<std::uint64_t>(5, row) = leaf;
    at<std::uint64_t>(6, row) = leaf + 1;
    at<std::uint64_t>(9, row) = leaf + 2;
    results.count(env);
  }

  PlannedArena memory;
  LastResults results;
};

constexpr std::uint32_t kRow = 3;

}  // namespace

TEST(the_last_result_is_the_one_that_was_counted_last) {
  Pool pool;
  CHECK_EQ(pool.results.results(1), 0u);
  pool.write_result(1, 10, false);
  CHECK(!pool.results.is_over(1));
  const std::uint32_t first = pool.results.row_of(1);
  pool.write_result(1, 20, true);
  CHECK(pool.results.row_of(1) != first && pool.results.is_over(1) && pool.results.results(1) == 2);
  CHECK_EQ(pool.results.results(0), 0u);
}

TEST(a_result_that_repeats_the_last_one_ends_nothing) {
  Pool pool;
  pool.write_result(1, 10, true);
  pool.at<std::uint64_t>(kInfoMask, kRow) = 5;
  pool.at<bool>(kTerminated, kRow) = true;
  pool.results.repeat(1, kRow);
  CHECK(pool.at<std::uint64_t>(5, kRow) == 10 && pool.at<std::uint64_t>(6, kRow) == 11);
  CHECK_EQ(pool.at<std::uint64_t>(9, kRow), 12u);
  CHECK(pool.at<double>(kReward, kRow) == 0.0 && !pool.results.ends_episode(kRow));
  CHECK_EQ(pool.at<std::uint64_t>(kInfoMask, kRow), 0u);
  CHECK(pool.results.is_over(1) && !pool.results.is_fresh(1));
}

TEST(an_end_made_here_is_a_truncation_and_the_last_result_from_then_on) {
  Pool pool;
  pool.write_result(0, 30, false);
  pool.results.end_episode(0, kRow);
  CHECK(pool.at<std::uint64_t>(5, kRow) == 30 && pool.at<double>(kReward, kRow) == 0.0);
  CHECK(pool.at<bool>(kTruncated, kRow) && !pool.at<bool>(kTerminated, kRow));
  CHECK(pool.results.is_over(0) && pool.results.is_fresh(0));
  pool.write_result(0, 31, false);
  CHECK(!pool.results.is_over(0) && !pool.results.is_fresh(0));
}

TEST(before_a_reset_into_the_row_the_last_observation_is_the_final_one) {
  Pool pool;
  pool.write_result(0, 40, false);
  pool.at<std::uint64_t>(5, kRow) = pool.at<std::uint64_t>(9, kRow) = 99;
  pool.results.end_before_reset(0, kRow);
  CHECK(pool.at<std::uint64_t>(7, kRow) == 40 && pool.at<std::uint64_t>(8, kRow) == 41);
  CHECK(pool.at<std::uint64_t>(5, kRow) == 99 && pool.at<std::uint64_t>(9, kRow) == 99);  // the reset will write these
  CHECK(pool.at<bool>(kTruncated, kRow) && pool.results.is_fresh(0) && !pool.results.is_over(0));
}
