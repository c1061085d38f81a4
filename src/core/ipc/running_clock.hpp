// Measures the time during which this process was frozen, so that deadlines do not include it.
//
// A debugger, a container or a scheduler may suspend this process together with its workers. Then much more time passes
// between two readings of the clock than in normal operation, and deadlines must not count that time against the
// workers.
//
// Much time may also pass because this thread waits for the GIL, which native code of the program holds. Workers that
// are processes run meanwhile. As long as the main thread used a core, this process was not frozen. The CPU time of the
// whole process would not show this: several threads can use more of it than time has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "ipc/doorbell.hpp"
#include "os/this_thread.hpp"

namespace remuda {

class RunningClock {
 public:
  // The longest time between two readings of the clock (`look`) that counts as running, beyond a planned sleep. A
  // longer time counts as frozen as a whole. kStall applies within a wait, kUnwatched between two waits, while the
  // caller does something else.
  static constexpr Nanoseconds kStall = std::chrono::milliseconds(100);
  static constexpr Nanoseconds kUnwatched = std::chrono::seconds(1);

  // `main_cpu`: returns the CPU time of the main thread.
  explicit RunningClock(Clock::time_point now = Clock::now(), std::uint64_t (*main_cpu)() = main_thread_cpu_ns)
      : main_cpu_(main_cpu), looked_(now), cpu_(main_cpu()) {}

  // Looks after a time in which this thread has slept. If the time is longer than `most`, all of it counts as frozen.
  void look(Clock::time_point now, Nanoseconds most) { note(now, now - looked_, most); }
  // Looks after a time in which this thread has been awake, or has waited for the GIL. The time in which the main
  // thread used no core counts as frozen, if it is longer than kStall.
  void look_awake(Clock::time_point now) {
    note(now, now - looked_ - Nanoseconds(static_cast<std::int64_t>(main_cpu_() - cpu_)), kStall);
  }

  // `lost` returns the total frozen time, `lost_since` the frozen time in the gaps that ended after `begin`.
  Nanoseconds lost() const { return lost_; }
  Nanoseconds lost_since(Clock::time_point begin) const {
    Nanoseconds lost{0};
    for (const Gap& gap : gaps_)
      if (gap.end > begin) lost += gap.lost;
    return lost;
  }

 private:
  struct Gap {
    Clock::time_point end;
    Nanoseconds lost;
  };
  static constexpr std::size_t kMostGaps = 16;

  void note(Clock::time_point now, Nanoseconds missing, Nanoseconds most) {
    looked_ = now;
    cpu_ = main_cpu_();
    if (missing <= most) return;
    lost_ += missing;
    gaps_.push_back({now, missing});
    if (gaps_.size() <= kMostGaps) return;
    // Merges the two oldest gaps and keeps the end of the later one. An op that began between the two ends thus gets
    // more time, not less.
    gaps_[1].lost += gaps_[0].lost;
    gaps_.pop_front();
  }

  std::uint64_t (*main_cpu_)();
  Clock::time_point looked_;
  std::uint64_t cpu_;     // the main thread's CPU time at that look
  std::deque<Gap> gaps_;  // the latest gaps, oldest first
  Nanoseconds lost_{0};
};

}  // namespace remuda
