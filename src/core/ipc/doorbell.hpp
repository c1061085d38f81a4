// A doorbell: a counter that any number of ringers increment, and one waiter that sleeps until it reaches a target.
//
// The waiter first spins, if spinning takes the core from no other thread (spin_policy.hpp), and calls `sched_yield` on
// every turn. It sees a change of the counter after 0.2 us; a wake-up by the kernel takes up to 60 us. After spinning,
// the waiter sleeps on a futex. It can request a wake-up at a target count, so that a batch of 64 results costs one
// wake-up. If it waits until all ringers have published everything, each ringer rings only when it has finished
// (ringer.hpp).
//
// No ring is missed. The waiter stores `sleeping` and then loads `notified`; the ringer adds to `notified` and then
// loads `sleeping`. If both loads could overtake both stores, the waiter would sleep on a bell that has been rung. All
// four are sequentially consistent, so in their one total order at least one side sees the other's store. Only these
// four accesses and the fence in ringer.hpp need sequential consistency.
//
// A ringer that is killed after it has added to `notified` wakes no sleeper. The waiter therefore sleeps in slices (see
// kSlice) and checks the rings again after each.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "ipc/clock.hpp"
#include "ipc/spin_policy.hpp"
#include "os/platform.hpp"

#if REMUDA_LINUX
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace remuda {

// The longest sleep without a check for deaths: after a death, it may take this long until the death is detected.
inline constexpr Nanoseconds kSlice = std::chrono::milliseconds(100);

struct Bell {
  alignas(64) std::atomic<std::uint32_t> notified;  // The number of rings so far; also the futex word.
  alignas(64) std::atomic<std::uint32_t> target;    // The waiter requests a wake-up at this count.
  std::atomic<std::uint32_t> sleeping;              // 1 while the waiter sleeps or is about to sleep.
  std::atomic<std::uint32_t> wants_all;             // 1: each ringer rings only when it has finished, see ringer.hpp.
  std::atomic<std::uint64_t> rung_ns;  // The time when a sleeper was last woken, to measure the duration of wake-ups.
};
static_assert(sizeof(Bell) == 128 && offsetof(Bell, target) == 64);

namespace park {

#if REMUDA_LINUX
inline void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds limit) {
  timespec ts{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE, because the ringer is another process. The call may return early for many reasons, so the caller
  // checks its condition again.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &ts, nullptr, 0);
}
inline void wake(std::atomic<std::uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
inline void yield() { sched_yield(); }
#else
// On systems without futexes, all waiters are threads of one process, and share this mutex and condition variable.
struct Lot {
  std::mutex mutex;
  std::condition_variable changed;
};
inline Lot& lot() {
  static Lot lot;
  return lot;
}
inline void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds limit) {
  std::unique_lock lock(lot().mutex);
  lot().changed.wait_for(lock, limit, [&] { return word.load() != expected; });
}
inline void wake(std::atomic<std::uint32_t>&) {
  {
    std::lock_guard lock(lot().mutex);
  }  // A sleeper checks the word under this lock: it sees the new value, or is already in `wait_for`.
  lot().changed.notify_all();
}
inline void yield() { std::this_thread::yield(); }
#endif

}  // namespace park

// Rings the bell `count` times, for the ringer. Returns the time when it woke a sleeper, or nullopt if no sleeper was
// woken.
inline std::optional<Clock::time_point> notify(Bell& bell, std::uint32_t count = 1) {
  std::uint32_t notified = bell.notified.fetch_add(count, std::memory_order_seq_cst) + count;
  if (bell.sleeping.load(std::memory_order_seq_cst) == 0) return std::nullopt;
  // Relaxed suffices: `target` was written before `sleeping`, and the load of `sleeping` above orders it.
  if (static_cast<std::int32_t>(notified - bell.target.load(std::memory_order_relaxed)) < 0) return std::nullopt;
  const auto now = Clock::now();
  bell.rung_ns.store(to_ns(now), std::memory_order_relaxed);
  park::wake(bell.notified);
  return now;
}

inline bool reached(const Bell& bell, std::uint32_t target) {
  return static_cast<std::int32_t>(bell.notified.load(std::memory_order_acquire) - target) >= 0;
}

// Waits until the bell has been rung up to `target`, for the waiter. Returns after about `limit` at the latest, and may
// return early without a reason, so the caller must check its condition. `start` is the current time. Returns the
// current time, so that the caller need not read the clock again.
inline Clock::time_point wait(Bell& bell, std::uint32_t target, Nanoseconds limit, SpinPolicy& spins,
                              Clock::time_point start = Clock::now()) {
  if (reached(bell, target)) return start;
  const auto spin_until = start + std::min(spins.budget(start), limit);
  auto now = start;
  for (bool goes_on = true; goes_on && now < spin_until;) {
    park::yield();
    const auto before = std::exchange(now, Clock::now());
    goes_on = spins.goes_on(before, now);
    if (!reached(bell, target)) continue;
    spins.note_wait(now - start);
    return now;
  }

  spins.settle();
  bell.target.store(target, std::memory_order_relaxed);
  bell.sleeping.store(1, std::memory_order_seq_cst);
  std::uint32_t notified = bell.notified.load(std::memory_order_seq_cst);
  if (static_cast<std::int32_t>(notified - target) < 0) park::sleep(bell.notified, notified, limit);
  // Relaxed suffices: a ringer that still reads 1 causes a needless wake-up, which is harmless.
  bell.sleeping.store(0, std::memory_order_relaxed);
  const auto slept = std::exchange(now, Clock::now());
  spins.note_wait(spins.note_wake_up(bell.rung_ns.load(std::memory_order_relaxed), slept, now) - start);
  return now;
}

}  // namespace remuda
