// The time that an env may take for each op.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ipc/protocol.hpp"
#include "ipc/running_clock.hpp"

namespace remuda {

class Deadlines {
 public:
  // Sets the limits; 0: unlimited. A reset within a step, or in advance, has the limit of a reset.
  void set(Nanoseconds reset, Nanoseconds step, Nanoseconds message, Nanoseconds build, Nanoseconds close) {
    limits_ = {reset, step, step, message, close, reset, build, reset, build};
    has_any_ = limits_ != Limits();
  }
  bool has_any() const { return has_any_; }
  Nanoseconds of(Op op) const { return limits_[static_cast<std::size_t>(op)]; }
  // Returns the shortest limit. There must be one.
  Nanoseconds shortest() const {
    Nanoseconds shortest = Nanoseconds::max();
    for (const Nanoseconds limit : limits_)
      if (limit.count() != 0) shortest = std::min(shortest, limit);
    return shortest;
  }
  // Returns whether an op that began at `begin` exceeds its limit. The time during which this process was frozen does
  // not count.
  bool is_over(Op op, Clock::time_point begin, Clock::time_point now, const RunningClock& clock) const {
    const Nanoseconds limit = limits_[static_cast<std::size_t>(op)];
    return limit.count() != 0 && now - begin - clock.lost_since(begin) > limit;
  }

 private:
  using Limits = std::array<Nanoseconds, 9>;

  Limits limits_{};  // by the number of the op
  bool has_any_ = false;
};

}  // namespace remuda
