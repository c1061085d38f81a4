// The ringer's end of a bell, for a ringer that publishes in several parts. It rings for each part only if the waiter
// may need that.
//
// A waiter that waits for everything under way cannot continue before every ringer has finished. Each ringer therefore
// keeps its count to itself and rings once, at its end. Otherwise, many ringers of one bell would compete for its cache
// line.
//
// No part is missed when the waiter changes its mind. The waiter stores `wants_all` and then checks what was published;
// the ringer publishes and then loads `wants_all`; a fence on each side separates the two. So either the ringer sees
// that each part counts now, or the waiter sees the part. A part that the waiter has seen may be counted later, which
// causes one early wake-up. A ringer that dies loses the count that it kept, as if it had been killed before it rang.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ipc/doorbell.hpp"

namespace remuda {

inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> fence{0};  // ThreadSanitizer does not model fences
  fence.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The waiter's end. After it sets `wants_all` to false, the waiter checks all rings again before it waits.
inline void want_all(Bell& bell, bool wants_all) {
  bell.wants_all.store(wants_all, std::memory_order_relaxed);
  full_fence();
}

class Ringer {
 public:
  explicit Ringer(Bell* bell) : bell_(bell) {}

  // Reports `count` more published records, with more under way.
  void ring_for_some(std::uint32_t count) {
    kept_ += count;
    full_fence();
    if (bell_->wants_all.load(std::memory_order_relaxed) == 0) ring();
  }
  // Reports `count` more published records, with nothing else under way.
  void ring_for_all(std::uint32_t count) {
    kept_ += count;
    ring();
  }

 private:
  void ring() {
    if (kept_ != 0) notify(*bell_, std::exchange(kept_, 0));
  }

  Bell* bell_;
  std::uint32_t kept_ = 0;  // records published, but not rung for
};

}  // namespace remuda
