// A number that one thread changes at a time, and that any thread may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace remuda {

class Count {
 public:
  Count() = default;
  Count(const Count& other) : value_(other) {}
  Count& operator=(std::uint32_t value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }
  Count& operator+=(std::uint32_t by) { return *this = *this + by; }  // only one thread writes: no atomic addition
  Count& operator-=(std::uint32_t by) { return *this = *this - by; }
  operator std::uint32_t() const { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> value_{0};
};

}  // namespace remuda
