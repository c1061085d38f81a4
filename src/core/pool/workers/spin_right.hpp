// Which pool of this process may let its workers spin: one at a time, or there would be more spinners than cores.
//
// It is the pool whose results are waited for: who has it keeps it by waiting, and who has not waited for a while loses
// it to the next who does.
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

  // Our pool's results are waited for: whether the right is ours now.
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
    static std::atomic<std::uint64_t> id{0};  // nobody's
    return id;
  }
  static std::atomic<std::uint64_t>& held_until() {
    static std::atomic<std::uint64_t> ns{0};
    return ns;
  }

  const std::uint64_t id_;
};

}  // namespace remuda
