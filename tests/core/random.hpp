// Random numbers that are the same on every machine: the standard's distributions are not.
#pragma once

#include <cstdint>
#include <random>

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  // 0, 1, ... n - 1; as good as uniform for the small n of tests.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }

 private:
  std::mt19937_64 engine_;
};

// A pause without a meaning, to shift threads against each other.
inline void idle(std::uint64_t turns) {
  [[maybe_unused]] volatile std::uint64_t sink = 0;  // keeps the loop
  for (std::uint64_t i = 0; i < turns; ++i) sink = i;
}
