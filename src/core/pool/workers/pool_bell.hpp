// The bell that workers ring when results are there, and the pool's caller waiting for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/doorbell.hpp"
#include "ipc/ringer.hpp"
#include "ipc/shared_cores.hpp"
#include "ipc/spin_policy.hpp"
#include "pool/workers/spin_right.hpp"

namespace remuda {

class PoolBell {
 public:
  // `spin`, `is_heedless`: see `SpinPolicy`.
  PoolBell(Bell& bell, SharedCores& cores, Nanoseconds spin, bool is_heedless)
      : bell_(bell), cores_(cores), spin_policy_(cores, SpinPolicy::kCaller, spin, is_heedless) {}
  PoolBell(const PoolBell&) = delete;
  PoolBell& operator=(const PoolBell&) = delete;

  // This worker leaves its core to the caller, until another finds itself there.
  void appoint_sleeper(std::uint32_t worker) { cores_.sleeper.store(worker + 1, std::memory_order_relaxed); }

  // How often it was rung.  Read before the rings: what is published after we looked at them rings past this count.
  std::uint32_t count() const { return bell_.notified.load(std::memory_order_acquire); }
  bool has_reached(std::uint32_t target) const { return reached(bell_, target); }

  // Tells the workers whether each result counts before they are through.  False when that is so from now on: then what
  // they have published until now is to be looked at once more.
  bool ask_for_all(bool all) {
    if (all == asks_for_all_) return true;
    want_all(bell_, all);
    asks_for_all_ = all;
    return all;
  }

  // Until it has been rung up to `target`, or for about `limit`; also returns early for no reason.  `now`: the time
  // before it; returns the time after it.
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
