// The current time for one call that may need it several times or never. The clock is read once at most.
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
  // Uses a later time from now on, if the clock was read elsewhere in the meantime.
  void note(std::optional<Clock::time_point> later) {
    if (later) now_ = later;
  }

 private:
  std::optional<Clock::time_point> now_;
};

}  // namespace remuda
