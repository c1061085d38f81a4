// What a pool and its workers tell each other about the cores that they share, so that nobody spins on a core that
// somebody else could use.  It lies in the arena; a cache line of zeros says nothing against spinning.
//
// Nothing is ordered by it, and who dies leaves nothing in it that could not be: whatever it says, the worst that comes
// of it is that somebody sleeps who could have spun, or the other way round for a while.
#pragma once

#include <algorithm>
#include <atomic>

#include "ipc/clock.hpp"

namespace remuda {

struct SharedCores {
  // Once somebody had to wait for a core, nobody spins for long: the first time for so long, and then twice as long
  // each time that it happens again soon after they have tried once more.
  static constexpr Nanoseconds kLeastPause = std::chrono::milliseconds(100);
  static constexpr Nanoseconds kLongestPause = std::chrono::seconds(10);

  alignas(64) std::atomic<std::uint32_t> learner;  // the core, plus 1, that the pool's caller was last seen on
  std::atomic<std::uint32_t> sleeper;  // the worker, plus 1, that leaves its core to him; 0: there is a core for each
  std::atomic<std::uint32_t> barred;   // 1: another pool of this process is at work
  std::atomic<std::uint64_t> crowded_until;  // ns
  std::atomic<std::uint64_t> pause;          // ns, the latest

  bool is_crowded(Clock::time_point now) const {
    const std::uint64_t until = crowded_until.load(std::memory_order_relaxed);
    return until > to_ns(now) && until - to_ns(now) <= static_cast<std::uint64_t>(kLongestPause.count());
  }

  // Somebody had to wait for a core.
  void note_crowd(Clock::time_point now) {
    if (is_crowded(now)) return;
    const std::uint64_t since = to_ns(now) - crowded_until.load(std::memory_order_relaxed);
    const std::uint64_t last = pause.load(std::memory_order_relaxed);
    const auto least = static_cast<std::uint64_t>(kLeastPause.count());
    const auto longest = static_cast<std::uint64_t>(kLongestPause.count());
    const std::uint64_t next = since < last ? std::clamp(2 * last, least, longest) : least;
    pause.store(next, std::memory_order_relaxed);
    crowded_until.store(to_ns(now) + next, std::memory_order_relaxed);
  }
};
static_assert(sizeof(SharedCores) == 64);

}  // namespace remuda
