// The time that an env may take for each op.
#pragma once

#include "ipc/protocol.hpp"
#include "ipc/running_clock.hpp"

namespace remuda {

class Deadlines {
 public:
  struct Limits {  // a limit of 0 means unlimited
    Nanoseconds reset{0}, step{0}, message{0}, build{0};
  };

  void set(const Limits& limits) {
    limits_ = limits;
    has_any_ = limits.reset.count() != 0 || limits.step.count() != 0 || limits.message.count() != 0 ||
               limits.build.count() != 0;
  }
  bool has_any() const { return has_any_; }
  // Returns whether an op that began at `begin` exceeds its limit. The time during which this process was frozen does
  // not count.
  bool is_over(Op op, Clock::time_point begin, Clock::time_point now, const RunningClock& clock) const {
    const Nanoseconds limit = limit_of(op);
    return limit.count() != 0 && now - begin - clock.lost_since(begin) > limit;
  }

 private:
  Nanoseconds limit_of(Op op) const {
    switch (op) {
      case Op::kReset:
      case Op::kResetIntoRow:
      case Op::kPrepare:
        return limits_.reset;
      case Op::kStep:
      case Op::kObserve:
        return limits_.step;
      case Op::kMessage:
      case Op::kClose:
        return limits_.message;
      case Op::kRebuild:
        return limits_.build;
    }
    return Nanoseconds(0);
  }

  Limits limits_;
  bool has_any_ = false;
};

}  // namespace remuda
