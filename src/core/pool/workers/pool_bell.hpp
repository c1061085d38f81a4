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

// The right to let workers spin, which only one pool of this process has at a time. With more spinning pools, the
// spinners would outnumber the cores.
//
// A pool takes the right when it waits for results, and each further wait extends the right by `kKept`. After that
// time, the next pool that waits takes the right. All orders are relaxed, because the right guards no data: a lost race
// only moves the right to another pool.
class SpinRight {
 public:
  static constexpr Nanoseconds kKept = std::chrono::milliseconds(10);

  SpinRight() : id_(last_id().fetch_add(1, std::memory_order_relaxed) + 1) {}
  SpinRight(const SpinRight&) = delete;
  SpinRight& operator=(const SpinRight&) = delete;

  // Called when this pool waits for results: takes the right if possible. Returns whether the pool has the right now.
  bool ask(Clock::time_point now) {
    std::uint64_t holder = holder_id().load(std::memory_order_relaxed);
    if (holder != id_) {
      const std::uint64_t until = held_until().load(std::memory_order_relaxed);
      if (to_ns(now) < until || !holder_id().compare_exchange_strong(holder, id_, std::memory_order_relaxed))
        return false;
    }
    held_until().store(to_ns(now + kKept), std::memory_order_relaxed);
    return true;
  }

 private:
  static std::atomic<std::uint64_t>& last_id() {
    static std::atomic<std::uint64_t> id{0};
    return id;
  }
  static std::atomic<std::uint64_t>& holder_id() {
    static std::atomic<std::uint64_t> id{0};  // the pool that has the right; 0: none
    return id;
  }
  static std::atomic<std::uint64_t>& held_until() {
    static std::atomic<std::uint64_t> ns{0};
    return ns;
  }

  const std::uint64_t id_;
};

class PoolBell {
 public:
  // `spin`, `is_heedless`: see `SpinPolicy`.
  PoolBell(Bell& bell, SharedCores& cores, Nanoseconds spin, bool is_heedless)
      : bell_(bell), cores_(cores), spin_policy_(cores, SpinPolicy::kCaller, spin, is_heedless) {}
  PoolBell(const PoolBell&) = delete;
  PoolBell& operator=(const PoolBell&) = delete;

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
    const bool is_barred = !spin_right_.ask(now);
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
  SpinRight spin_right_;
  bool asks_for_all_ = false;
};

}  // namespace remuda
