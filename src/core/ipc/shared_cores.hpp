// State in the arena that a pool and its workers share about cores, so that no thread spins on a core that another
// thread could use. While all of it is zero, spinning is permitted.
//
// It does not order other memory accesses. A process that dies leaves only valid values here. A wrong value is
// harmless: for a while, a thread sleeps that could have spun, or spins although it should sleep.
#pragma once

#include <algorithm>
#include <atomic>

#include "ipc/clock.hpp"

namespace remuda {

struct SharedCores {
  // A pause begins when a thread has had to wait for a core. During a pause all threads spin only briefly. The first
  // pause lasts kLeastPause. If a thread has to wait again soon after a pause ended, the next pause lasts twice as
  // long.
  static constexpr Nanoseconds kLeastPause = std::chrono::milliseconds(100);
  static constexpr Nanoseconds kLongestPause = std::chrono::seconds(10);

  alignas(64) std::atomic<std::uint32_t> learner;  // The core, plus 1, on which the pool's caller last ran.
  // The worker, plus 1, that does not spin, to leave a core to the caller; 0 if no worker has to.
  std::atomic<std::uint32_t> sleeper;
  std::atomic<std::uint32_t> barred;         // 1 if another pool of this process is active.
  std::atomic<std::uint32_t> caller_sleeps;  // 1 if the pool's caller mostly sleeps between two batches.
  std::atomic<std::uint64_t> crowded_until;  // The end of the latest pause, in ns.
  std::atomic<std::uint64_t> pause;          // The length of the latest pause, in ns.

  bool is_crowded(Clock::time_point now) const {
    const std::uint64_t until = crowded_until.load(std::memory_order_relaxed);
    return until > to_ns(now) && until - to_ns(now) <= static_cast<std::uint64_t>(kLongestPause.count());
  }

  // Starts a pause, unless one is in progress. Called when a thread had to wait for a core.
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
