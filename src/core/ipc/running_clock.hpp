// Measures the time during which this process was frozen, so that deadlines do not include it.
//
// A debugger, a container or a scheduler may suspend this process together with its workers. Then much more time passes
// between two readings of the clock than in normal operation, and deadlines must not count that time against the
// workers.
#pragma once

#include <cstddef>
#include <deque>

#include "ipc/doorbell.hpp"

namespace remuda {

class RunningClock {
 public:
  // The longest time between two readings of the clock (`look`) that counts as running, beyond a planned sleep. A
  // longer time counts as frozen as a whole. kStall applies within a wait, kUnwatched between two waits, while the
  // caller does something else.
  static constexpr Nanoseconds kStall = std::chrono::milliseconds(100);
  static constexpr Nanoseconds kUnwatched = std::chrono::seconds(1);

  explicit RunningClock(Clock::time_point now = Clock::now()) : looked_(now) {}

  void look(Clock::time_point now, Nanoseconds most) {
    const Nanoseconds passed = now - looked_;
    looked_ = now;
    if (passed <= most) return;
    lost_ += passed;
    gaps_.push_back({now, passed});
    if (gaps_.size() <= kMostGaps) return;
    // Merges the two oldest gaps and keeps the end of the later one. An op that began between the two ends thus gets
    // more time, not less.
    gaps_[1].lost += gaps_[0].lost;
    gaps_.pop_front();
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

  Clock::time_point looked_;
  std::deque<Gap> gaps_;  // the latest gaps, oldest first
  Nanoseconds lost_{0};
};

}  // namespace remuda
