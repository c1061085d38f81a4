// Trials of threads that wait for each other. Such a wait takes microseconds, and on a busy machine many milliseconds.
#pragma once

#include <cstdint>

#include "ipc/clock.hpp"

class Trials {
 public:
  // `most`: the number of trials. Fewer are made if they take longer than `kLongest`.
  explicit Trials(std::uint64_t most) : most_(most), end_(remuda::Clock::now() + kLongest) {}

  // Returns whether another trial follows after `made` of them. One is made in any case.
  bool go_on(std::uint64_t made) const { return made == 0 || (made < most_ && remuda::Clock::now() < end_); }

 private:
  static constexpr remuda::Nanoseconds kLongest = std::chrono::milliseconds(300);

  std::uint64_t most_;
  remuda::Clock::time_point end_;
};
