// The time of a call that may need it several times, or not at all: the clock is read once.
#pragma once

#include <optional>

#include "ipc/clock.hpp"

namespace remuda {

class TimeOfCall {
 public:
  Clock::time_point get() {
    if (!now_) now_ = Clock::now();
    return *now_;
  }
  // Somebody has read the clock meanwhile, perhaps.
  void note(std::optional<Clock::time_point> later) {
    if (later) now_ = later;
  }

 private:
  std::optional<Clock::time_point> now_;
};

}  // namespace remuda
