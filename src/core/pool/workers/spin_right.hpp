// The right to let workers spin, which only one pool of this process has at a time. With more spinning pools, the
// spinners would outnumber the cores.
//
// A pool takes the right when it waits for results, and each further wait extends the right by `kKept`. After that
// time, the next pool that waits takes the right. All orders are relaxed, because the right guards no data: a lost race
// only moves the right to another pool.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/clock.hpp"

namespace remuda {

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

}  // namespace remuda
