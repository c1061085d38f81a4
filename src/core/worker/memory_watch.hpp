// Checks whether the worker's process exceeds its memory limit.
#pragma once

#include <cstdint>

#include "ipc/clock.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class MemoryWatch {
 public:
  explicit MemoryWatch(const nb::object& hooks) : hooks_(hooks) {}

  // Returns whether the process exceeds its limit. A check reads many files, so its result is reused for kInterval.
  // Once the result is true, it stays true.
  bool has_grown() {
    const std::uint64_t now = now_ns();
    if (has_grown_ || now < look_at_) return has_grown_;
    has_grown_ = nb::cast<bool>(hooks_.attr("has_grown")());
    look_at_ = now + kInterval;
    return has_grown_;
  }

 private:
  static constexpr std::uint64_t kInterval = 100'000'000;  // ns

  const nb::object& hooks_;
  std::uint64_t look_at_ = 0;
  bool has_grown_ = false;
};

}  // namespace remuda
