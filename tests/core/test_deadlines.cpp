// Tests that an op is late after its limit, without the time during which this process was frozen.
#include "check.hpp"
#include "pool/workers/deadlines.hpp"

using namespace remuda;
using namespace std::chrono_literals;

namespace {

constexpr Clock::time_point kStart{1h};

Deadlines limits(Nanoseconds reset, Nanoseconds step, Nanoseconds message, Nanoseconds build, Nanoseconds close = 0s) {
  Deadlines deadlines;
  deadlines.set(reset, step, message, build, close);
  return deadlines;
}

}  // namespace

TEST(time_that_we_were_frozen_is_not_the_workers) {
  const Deadlines deadlines = limits(0s, 10s, 0s, 0s);
  RunningClock frozen(kStart);
  frozen.look(kStart + 60s, 1s);  // a gap counts as frozen as a whole
  CHECK_EQ(frozen.lost().count(), Nanoseconds(60s).count());
  CHECK(!deadlines.is_over(Op::kStep, kStart, kStart + 70s, frozen));
  CHECK(deadlines.is_over(Op::kStep, kStart, kStart + 70s + 1ns, frozen));
  // An op that began after the frozen time gets no extra time.
  CHECK(deadlines.is_over(Op::kStep, kStart + 60s, kStart + 70s + 1ns, frozen));
}

TEST(time_in_which_the_main_thread_computes_is_the_workers) {
  static std::uint64_t cpu;
  cpu = 0;
  RunningClock clock(kStart, [] { return cpu; });
  const auto look_awake = [&](Clock::time_point now, Nanoseconds busy) {
    cpu += static_cast<std::uint64_t>(busy.count());
    const Nanoseconds before = clock.lost();
    clock.look_awake(now);
    return clock.lost() - before;
  };
  CHECK(look_awake(kStart + 5s, 5s) == 0s);
  CHECK(look_awake(kStart + 10s, 4900ms) == 0s);    // the main thread may lack a core for a moment
  CHECK(look_awake(kStart + 15s, 2s) == 3s);        // frozen, or asleep while it held the GIL
  CHECK(look_awake(kStart + 16s, 0s) == 1s);        // another thread held the GIL
  CHECK(look_awake(kStart + 16s + 1ms, 2s) == 0s);  // more CPU time than time cannot be
  CHECK(look_awake(kStart + 17s + 1ms, 0s) == 1s);  // and counts for no later time
  cpu += 1'000'000'000;
  clock.look(kStart + 19s, 1s);  // a sleep that was too long: whatever other threads did, it counts as a whole
  CHECK_EQ(clock.lost().count(), Nanoseconds(5s + 1999ms).count());
  CHECK(look_awake(kStart + 20s, 0s) == 1s);  // their CPU time in the sleep counts for no later time
  CHECK(limits(0s, 10s, 0s, 0s).is_over(Op::kStep, kStart, kStart + 12s, RunningClock(kStart)));
  CHECK(!limits(0s, 15s, 0s, 0s).is_over(Op::kStep, kStart, kStart + 20s, clock));
}

TEST(of_many_gaps_nobody_is_given_less_than_he_lost) {
  RunningClock frozen(kStart);
  constexpr int kGaps = 50;
  for (int i = 1; i <= kGaps; ++i) {
    frozen.look(kStart + i * 2s - 1s, 1s);  // in time
    frozen.look(kStart + i * 2s, 0s);
  }
  CHECK_EQ(frozen.lost().count(), Nanoseconds(kGaps * 1s).count());
  for (int i = 0; i <= kGaps; ++i) CHECK(frozen.lost_since(kStart + i * 2s) >= (kGaps - i) * 1s);
  CHECK_EQ(frozen.lost_since(kStart).count(), frozen.lost().count());
  // the latest gaps are not merged
  CHECK_EQ(frozen.lost_since(kStart + (kGaps - 1) * 2s).count(), Nanoseconds(1s).count());
  CHECK_EQ(frozen.lost_since(kStart + kGaps * 2s).count(), 0);
}
