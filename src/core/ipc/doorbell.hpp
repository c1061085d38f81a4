// A doorbell: lets one side sleep until others have counted up to a target.  Any number of ringers, one waiter.
//
// The waiter first spins where that costs nobody anything (spin_policy.hpp), giving its core away on every turn
// (`sched_yield`), because a wake-up through the kernel costs up to 60 us where a shared counter costs 0.2; then it
// sleeps on a futex.  It may ask to be woken only when the count reaches a target, so that a batch of 64 results costs
// one wake-up; and if it wants all that there is to come, ringers need not even count before they are through
// (ringer.hpp).
//
// The missed-wake window.  The waiter stores `sleeping` and then loads `notified`; the ringer adds to
// `notified` and then loads `sleeping`.  If both loads could overtake both stores, the waiter would sleep
// on a bell that has been rung.  All four are sequentially consistent, so in their one total order at
// least one side sees the other: this is the only place in the core that needs it.
//
// Not promised: a wake-up from a ringer that was killed between adding and waking.  Sleeps are
// therefore cut into slices by the caller (see kSlice), who looks at the rings again after each.
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

// The longest anybody sleeps without looking up: the bound on noticing a death.
inline constexpr Nanoseconds kSlice = std::chrono::milliseconds(100);

struct Bell {
  alignas(64) std::atomic<std::uint32_t> notified;  // how often it was rung; also the futex word
  alignas(64) std::atomic<std::uint32_t> target;    // the waiter wants to be woken at this count
  std::atomic<std::uint32_t> sleeping;              // 1 while the waiter is (about to be) asleep
  std::atomic<std::uint32_t> wants_all;             // 1: nothing need be counted before a ringer is through
  std::atomic<std::uint64_t> rung_ns;               // when a sleeper was last woken; only to learn how long that takes
};
static_assert(sizeof(Bell) == 128 && offsetof(Bell, target) == 64);

namespace park {

#if REMUDA_LINUX
inline void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds limit) {
  timespec ts{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE: the other side lives in another process.  Any return (woken, changed, timed
  // out, interrupted) means the same to the caller: look again.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &ts, nullptr, 0);
}
inline void wake(std::atomic<std::uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
inline void yield() { sched_yield(); }
#else
// Without futexes there are only threads of one process to wait for, and one lot serves them all.
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

// The ringer's side.  Returns the time when it woke a sleeper; nothing where nobody slept.
inline std::optional<Clock::time_point> notify(Bell& bell, std::uint32_t count = 1) {
  std::uint32_t notified = bell.notified.fetch_add(count, std::memory_order_seq_cst) + count;
  if (bell.sleeping.load(std::memory_order_seq_cst) == 0) return std::nullopt;
  // Relaxed: `target` was written before `sleeping`, whose load above ordered it.
  if (static_cast<std::int32_t>(notified - bell.target.load(std::memory_order_relaxed)) < 0) return std::nullopt;
  const auto now = Clock::now();
  bell.rung_ns.store(to_ns(now), std::memory_order_relaxed);
  park::wake(bell.notified);
  return now;
}

inline bool reached(const Bell& bell, std::uint32_t target) {
  return static_cast<std::int32_t>(bell.notified.load(std::memory_order_acquire) - target) >= 0;
}

// The waiter's side: returns when the bell has been rung up to `target`, or after about `limit`, or
// early for no reason at all.  The caller looks at what it waits for, and comes back if it must.
// `start`: the time now; returns the time then, so that who has looked at the clock need not look again.
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
  bell.sleeping.store(0, std::memory_order_relaxed);  // a needless wake-up does no harm
  const auto slept = std::exchange(now, Clock::now());
  spins.note_wait(spins.note_wake_up(bell.rung_ns.load(std::memory_order_relaxed), slept, now) - start);
  return now;
}

}  // namespace remuda
