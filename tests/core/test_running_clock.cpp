// Tests which gaps between two looks a RunningClock counts as frozen time.
#include "check.hpp"
#include "ipc/running_clock.hpp"

using namespace remuda;
using namespace std::chrono_literals;

namespace {

constexpr Nanoseconds kStall = RunningClock::kStall;

TEST(time_between_looks_that_follow_each_other_counts) {
  RunningClock clock;
  auto now = Clock::now();
  for (int i = 0; i < 1000; ++i) clock.look(now += kStall, kStall);
  CHECK(clock.lost() < kStall);  // only the first gap is slightly longer than kStall
}

TEST(of_a_long_gap_no_more_counts_than_may_pass_between_two_looks) {
  RunningClock clock;
  auto now = Clock::now();
  clock.look(now, kStall);
  const auto begin = now;
  clock.look(now += 60s, kStall);
  CHECK(clock.lost() == 60s - kStall);
  CHECK(clock.lost_since(begin) == 60s - kStall);
  CHECK(clock.lost_since(now) == 0s);
  clock.look(now += 60s, RunningClock::kUnwatched);
  CHECK(clock.lost() == 119s - kStall);
  CHECK(clock.lost_since(begin + 60s) == 59s);
}

TEST(who_began_before_many_gaps_is_given_no_less_time) {
  RunningClock clock;
  auto now = Clock::now();
  clock.look(now, kStall);
  const auto begin = now;
  for (int i = 0; i < 100; ++i) clock.look(now += kStall + 1s, kStall);
  CHECK(clock.lost() == 100s);
  CHECK(clock.lost_since(begin) == 100s);
  CHECK(clock.lost_since(begin + 50 * (kStall + 1s)) >= 50s);
}

}  // namespace
