// The frames of a pool and who holds them.
//
// A batch is a view of a frame, and holds a lease on it: the arrays' base object is the lease, so the
// frame comes back when the last array (or view of one, or tensor made from one) is gone, in whatever
// thread that happens.  The book is shared with the leases because they may outlive the pool.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "arena.hpp"

namespace remuda {

class FrameBook {
 public:
  static constexpr std::uint32_t kMaxFrames = 64;  // the bits of a word

  explicit FrameBook(std::uint32_t frames) : free_(all(frames)) {}
  bool any_free() const { return free_.load(std::memory_order_acquire) != 0; }

  // The caller is the pool's one thread, and has made sure that a frame is free.
  std::uint32_t take() {
    auto frame = static_cast<std::uint32_t>(std::countr_zero(free_.load(std::memory_order_acquire)));
    free_.fetch_and(~(1ULL << frame), std::memory_order_acq_rel);
    return frame;
  }
  // Release pairs with the acquire of `take`: the holder's last read comes before the next write.
  void give_back(std::uint32_t frame) { free_.fetch_or(1ULL << frame, std::memory_order_acq_rel); }

 private:
  static std::uint64_t all(std::uint32_t frames) {
    if (frames < 1 || frames > kMaxFrames) throw std::invalid_argument("a pool has 1 to 64 frames");
    return ~0ULL >> (kMaxFrames - frames);
  }

  std::atomic<std::uint64_t> free_;
};

// Keeps a frame and the arena under it.
class Lease {
 public:
  Lease(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame)
      : arena_(std::move(arena)), book_(std::move(book)), frame_(frame) {}
  ~Lease() { book_->give_back(frame_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<FrameBook> book_;
  std::uint32_t frame_;
};

}  // namespace remuda
