// The ringer's end of a bell, for a ringer that publishes its records in several portions. It rings after each portion
// only if the waiter may need that portion.
//
// A waiter may wait until all ringers have published everything. Each ringer then rings only once, when it has
// finished. Otherwise, many ringers of one bell would compete for its cache line.
//
// No portion is missed when the waiter changes `wants_all`. The waiter stores `wants_all` and then checks what was
// published. The ringer publishes a portion and then loads `wants_all`. On each side, a fence separates the two
// accesses. So either the ringer sees that it must ring now, or the waiter sees the portion. The ringer may still ring
// for a portion that the waiter has already seen, which causes one early wake-up. If a ringer dies before it has rung
// for all of its portions, the bell never counts the remaining portions.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ipc/doorbell.hpp"

namespace remuda {

inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> fence{0};  // stands in for the fence, which ThreadSanitizer does not model
  fence.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Sets `wants_all`. Only the waiter calls this. After it has set `wants_all` to false, it must check all rings again
// before it waits.
inline void want_all(Bell& bell, bool wants_all) {
  bell.wants_all.store(wants_all, std::memory_order_relaxed);
  full_fence();
}

class Ringer {
 public:
  explicit Ringer(Bell* bell) : bell_(bell) {}

  // Counts published records while the ringer has more to publish. Rings the bell unless the waiter waits for all
  // records.
  void ring_for_some(std::uint32_t count) {
    kept_ += count;
    full_fence();
    if (bell_->wants_all.load(std::memory_order_relaxed) == 0) ring();
  }
  // Counts published records when the ringer has finished, and rings the bell.
  void ring_for_all(std::uint32_t count) {
    kept_ += count;
    ring();
  }

 private:
  void ring() {
    if (kept_ != 0) notify(*bell_, std::exchange(kept_, 0));
  }

  Bell* bell_;
  std::uint32_t kept_ = 0;  // the number of published records for which the bell was not rung yet
};

}  // namespace remuda
