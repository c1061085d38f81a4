// A doorbell: a counter that any number of ringers increment, and one waiter that sleeps until it reaches a target.
//
// The waiter first spins, if spinning takes the core from no other thread (spin_policy.hpp), and calls `sched_yield` on
// every turn. A wake-up through the kernel costs up to 60 us, where a shared counter costs 0.2. Then it sleeps on a
// futex. It may request a wake-up only when the count reaches a target, so that a batch of 64 results costs one
// wake-up. If it waits for everything that is under way, ringers count only when they have finished (ringer.hpp).
//
// The missed-wake window. The waiter stores `sleeping` and then loads `notified`; the ringer adds to `notified` and
// then loads `sleeping`. If both loads could overtake both stores, the waiter would sleep on a bell that has been rung.
// All four are sequentially consistent, so in their one total order at least one side sees the other. Only this and the
// fence in ringer.hpp need that order.
//
// Not promised: a wake-up from a ringer that was killed between adding and waking. The caller therefore cuts its sleep
// into slices (see kSlice) and checks the rings again after each.
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

// The longest sleep without a check: it bounds the time until a death is detected.
inline constexpr Nanoseconds kSlice = std::chrono::milliseconds(100);

struct Bell {
  alignas(64) std::atomic<std::uint32_t> notified;  // the number of rings so far; also the futex word
  alignas(64) std::atomic<std::uint32_t> target;    // the waiter requests a wake-up at this count
  std::atomic<std::uint32_t> sleeping;              // 1 while the waiter sleeps or is about to sleep
  std::atomic<std::uint32_t> wants_all;             // 1: ringers may count only when they have finished, see ringer.hpp
  std::atomic<std::uint64_t> rung_ns;  // when a sleeper was last woken, to measure how long a wake-up takes
};
static_assert(sizeof(Bell) == 128 && offsetof(Bell, target) == 64);

namespace park {

#if REMUDA_LINUX
inline void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds limit) {
  timespec ts{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE: the other side lives in another process. The caller checks its condition again after any return
  // (woken, changed, timed out, interrupted).
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &ts, nullptr, 0);
}
inline void wake(std::atomic<std::uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
inline void yield() { sched_yield(); }
#else
// Without futexes the waiters are threads of one process, and one mutex and condition variable serve them all.
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
  }  // a sleeper is either before its check or inside wait
  lot().changed.notify_all();
}
inline void yield() { std::this_thread::yield(); }
#endif

}  // namespace park

// The ringer's end. Returns the time when it woke a sleeper, or nullopt if no sleeper was woken.
inline std::optional<Clock::time_point> notify(Bell& bell, std::uint32_t count = 1) {
  std::uint32_t notified = bell.notified.fetch_add(count, std::memory_order_seq_cst) + count;
  if (bell.sleeping.load(std::memory_order_seq_cst) == 0) return std::nullopt;
  // Relaxed: `target` was written before `sleeping`, and the load of `sleeping` above ordered it.
  if (static_cast<std::int32_t>(notified - bell.target.load(std::memory_order_relaxed)) < 0) return std::nullopt;
  const auto now = Clock::now();
  bell.rung_ns.store(to_ns(now), std::memory_order_relaxed);
  park::wake(bell.notified);
  return now;
}

inline bool reached(const Bell& bell, std::uint32_t target) {
  return static_cast<std::int32_t>(bell.notified.load(std::memory_order_acquire) - target) >= 0;
}

// The waiter's end. Returns when the bell has been rung up to `target`, after about `limit`, or early without a reason.
// The caller checks its condition and calls again if necessary. `start` is the current time. Returns the time at
// return, which saves the caller another look at the clock.
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
  // Relaxed: a ringer that still sees 1 causes a needless wake-up, which is harmless.
  bell.sleeping.store(0, std::memory_order_relaxed);
  const auto slept = std::exchange(now, Clock::now());
  spins.note_wait(spins.note_wake_up(bell.rung_ns.load(std::memory_order_relaxed), slept, now) - start);
  return now;
}

}  // namespace remuda
