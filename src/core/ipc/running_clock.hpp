// The clock that deadlines go by: it stands still while this process does.
//
// Whoever freezes the whole job (a debugger, a container or a scheduler that suspends it) freezes us and our workers:
// far more time passes between two looks at the clock then than we ever let pass, and nobody is late because of that.
#pragma once

#include <cstddef>
#include <deque>

#include "ipc/doorbell.hpp"

namespace remuda {

class RunningClock {
 public:
  // What passes between two looks counts as no more than this: in a wait, which looks up every few milliseconds; and
  // between two waits, where the caller does something else.
  static constexpr Nanoseconds kStall = std::chrono::milliseconds(100);
  static constexpr Nanoseconds kUnwatched = std::chrono::seconds(1);

  explicit RunningClock(Clock::time_point now = Clock::now()) : looked_(now) {}

  void look(Clock::time_point now, Nanoseconds most) {
    const Nanoseconds passed = now - looked_;
    looked_ = now;
    if (passed <= most) return;
    lost_ += passed - most;
    gaps_.push_back({now, passed - most});
    if (gaps_.size() <= kMostGaps) return;
    gaps_[1].lost += gaps_[0].lost;  // as if both had been later: who began before that is given more time, not less
    gaps_.pop_front();
  }

  // How long it stood still, all told; and since some time.
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
  std::deque<Gap> gaps_;  // the latest, oldest first
  Nanoseconds lost_{0};
};

}  // namespace remuda
