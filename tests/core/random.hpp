// Random numbers that are equal on every machine, unlike those of the standard library's distributions.
#pragma once

#include <cstdint>
#include <random>

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  // Returns a number from 0 to n - 1. For small n the distribution is almost uniform.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }

 private:
  std::mt19937_64 engine_;
};

// Counts to `turns`, to vary the timing of threads.
inline void idle(std::uint64_t turns) {
  [[maybe_unused]] volatile std::uint64_t sink = 0;  // prevents the compiler from removing the loop
  for (std::uint64_t i = 0; i < turns; ++i) sink = i;
}
