// The bell that workers ring for their results, and the caller's wait for this bell.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/clock.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/ringer.hpp"
#include "ipc/shared_cores.hpp"
#include "ipc/spin_policy.hpp"

namespace remuda {

// The token that lets workers spin, which only one pool of this process has at a time. With more spinning pools, the
// spinners would outnumber the cores.
//
// A pool takes the token when it waits for results, and each further wait extends the token by `kKept`. After that
// time, the next pool that waits takes the token. All orders are relaxed, because the token guards no data: a lost race
// only moves the token to another pool.
class SpinToken {
 public:
  static constexpr Nanoseconds kKept = std::chrono::milliseconds(10);

  SpinToken() : id_(last_id_.fetch_add(1, std::memory_order_relaxed) + 1) {}
  SpinToken(const SpinToken&) = delete;
  SpinToken& operator=(const SpinToken&) = delete;

  // Called when this pool waits for results: takes the token if possible. Returns whether the pool has the token now.
  bool ask(Clock::time_point now) {
    std::uint64_t holder = holder_.load(std::memory_order_relaxed);
    if (holder != id_) {
      const std::uint64_t until = held_until_.load(std::memory_order_relaxed);
      if (to_ns(now) < until || !holder_.compare_exchange_strong(holder, id_, std::memory_order_relaxed)) return false;
    }
    held_until_.store(to_ns(now + kKept), std::memory_order_relaxed);
    return true;
  }

 private:
  static inline std::atomic<std::uint64_t> last_id_{0};
  static inline std::atomic<std::uint64_t> holder_{0};      // the id of the pool that has the token; 0: none
  static inline std::atomic<std::uint64_t> held_until_{0};  // in ns

  const std::uint64_t id_;
};

class PoolBell {
 public:
  // `spin`, `ignore_load`: see `SpinPolicy`.
  PoolBell(Bell& bell, SharedCores& cores, Nanoseconds spin, bool ignore_load)
      : bell_(bell), cores_(cores), spin_policy_(cores, SpinPolicy::kCaller, spin, ignore_load) {}

  // Makes this worker the one that does not spin, to leave its core to the caller. Later, a worker that finds itself on
  // the caller's core takes over.
  void appoint_sleeper(std::uint32_t worker) { cores_.sleeper.store(worker + 1, std::memory_order_relaxed); }

  // The number of rings so far. The caller must read this number before it reads results, so that each later result
  // increases the number further. The acquire keeps the reads of results after this load.
  std::uint32_t count() const { return bell_.notified.load(std::memory_order_acquire); }
  bool has_reached(std::uint32_t target) const { return reached(bell_, target); }
  // Wakes a thread that sleeps for `needed` results, as if they had arrived.
  void wake(std::uint32_t needed) { notify(bell_, needed); }

  // If `all` is true, each worker rings only after it has published all of its results; otherwise, it rings whenever it
  // publishes some. Returns false after a switch from true to false. Then workers may not have rung the bell for some
  // published results, so the caller must read the result rings again.
  bool ask_for_all(bool all) {
    if (all == asks_for_all_) return true;
    want_all(bell_, all);
    asks_for_all_ = all;
    return all;
  }

  // Sleeps until the bell has been rung up to `target`, or for about `limit`, or shorter without a reason. `now`: the
  // time before the sleep. Returns the time after it.
  Clock::time_point wait(std::uint32_t target, Nanoseconds limit, Clock::time_point now) {
    const bool is_barred = !spin_token_.ask(now);
    if (cores_.barred.load(std::memory_order_relaxed) != is_barred)
      cores_.barred.store(is_barred, std::memory_order_relaxed);
    now = remuda::wait(bell_, target, limit, spin_policy_, now);
    spin_policy_.note_core();
    return now;
  }

 private:
  Bell& bell_;
  SharedCores& cores_;
  SpinPolicy spin_policy_;
  SpinToken spin_token_;
  bool asks_for_all_ = false;
};

}  // namespace remuda
