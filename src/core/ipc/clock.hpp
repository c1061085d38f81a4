// The clock of the pool and its workers: CLOCK_MONOTONIC, which all processes of a machine share.
#pragma once

#include <chrono>
#include <cstdint>

namespace remuda {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

inline std::uint64_t to_ns(Clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<Nanoseconds>(time.time_since_epoch()).count());
}
inline std::uint64_t now_ns() { return to_ns(Clock::now()); }

}  // namespace remuda
