// The ringer's side of a bell, for one who publishes bit by bit: it rings for each bit only as long as that may be of
// use to the waiter.
//
// Who waits for all that is under way cannot go on before every ringer is through; so each keeps its count to itself,
// and rings once, at its end.  Many ringers of one bell would else take its cache line from each other all the time.
//
// Nothing is overlooked when the waiter changes its mind.  He stores `wants_all` and then looks at what was published;
// the ringer publishes and then loads `wants_all`; between these is a fence on both sides.  So either the ringer sees
// that each bit counts now, or the waiter sees the bit.  What he has seen may be counted later: that wakes him early,
// once, and he looks again.  A ringer that dies takes along what it kept, as one does that is killed before it rings.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ipc/doorbell.hpp"

namespace remuda {

inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> fence{0};  // ThreadSanitizer knows of no fences
  fence.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The waiter's side.  Whoever no longer wants all looks at everything again before he waits.
inline void want_all(Bell& bell, bool wants_all) {
  bell.wants_all.store(wants_all, std::memory_order_relaxed);
  full_fence();
}

class Ringer {
 public:
  explicit Ringer(Bell* bell) : bell_(bell) {}

  // So many more were published, and more are on their way.
  void ring_for_some(std::uint32_t count) {
    kept_ += count;
    full_fence();
    if (bell_->wants_all.load(std::memory_order_relaxed) == 0) ring();
  }
  // So many more were published, and nothing else is under way.
  void ring_for_all(std::uint32_t count) {
    kept_ += count;
    ring();
  }

 private:
  void ring() {
    if (kept_ != 0) notify(*bell_, std::exchange(kept_, 0));
  }

  Bell* bell_;
  std::uint32_t kept_ = 0;  // published, but not rung for
};

}  // namespace remuda
