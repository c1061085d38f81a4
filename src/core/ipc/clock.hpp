// The clock of the pool and its workers: CLOCK_MONOTONIC, which all processes of a machine share.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace remuda {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

inline std::uint64_t to_ns(Clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<Nanoseconds>(time.time_since_epoch()).count());
}
inline std::uint64_t now_ns() { return to_ns(Clock::now()); }

// The current time for one call that may need it several times or never. The clock is read once at most.
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
