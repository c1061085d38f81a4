// The frames of a pool or of a part, and the leases on them.
//
// A batch that is a view of a frame holds a lease on it. The lease is the base object of the batch's arrays. It gives
// the frame back to its FrameBook, the book of free frames, when the last array (or view of one, or tensor made from
// one) is freed, in any thread. The pool also ends the lease when it finds that only its own references to the arrays
// are left (lent_frames.hpp). The leases share the FrameBook with the pool, because they may outlive the pool.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

// Records which frames of a part are free, in the bits of one word. Only the pool's thread takes frames; any thread may
// give one back.
class FrameBook {
 public:
  static constexpr std::uint32_t kMaxFrames = 64;  // A word of 64 bits has one bit for each frame.

  // `frames`: 1 to kMaxFrames. `before`: the FrameBooks of all earlier divisions of the pool into parts. A frame counts
  // as free only if none of them has lent a frame with the same number. The list is flat: if each FrameBook referred
  // only to its predecessor, every division would lengthen the chain.
  explicit FrameBook(std::uint32_t frames, std::vector<std::shared_ptr<FrameBook>> before = {})
      : all_(~0ULL >> (kMaxFrames - frames)), free_(all_), before_(std::move(before)) {}
  bool any_free() const { return free() != 0; }
  // Returns whether this frame must not be lent. One frame never is, so that the next command to all slots finds a free
  // frame. It has the same number in all FrameBooks: leases on frames of two parts, or of two divisions of the pool,
  // could otherwise leave no frame that all of them have free.
  bool is_reserve(std::uint32_t frame) const { return all_ >> frame == 1; }
  // Returns whether all frames of this FrameBook are free, without regard to `before`.
  bool all_back() const { return free_.load(std::memory_order_acquire) == all_; }

  // The frames of this FrameBook that are lent or in use, one bit for each.
  std::uint64_t taken() const { return all_ & ~free_.load(std::memory_order_acquire); }

  // Takes a free frame, and returns its number. Only the pool's thread may call this, after `any_free` has returned
  // true.
  std::uint32_t take() {
    auto frame = static_cast<std::uint32_t>(std::countr_zero(free()));
    free_.fetch_and(~(1ULL << frame), std::memory_order_acq_rel);
    return frame;
  }
  // Frees a frame. The release pairs with the acquire in `take`: the last read of the old data comes before the next
  // write.
  void give_back(std::uint32_t frame) { free_.fetch_or(1ULL << frame, std::memory_order_acq_rel); }

 private:
  std::uint64_t free() const {
    std::uint64_t free = free_.load(std::memory_order_acquire);
    for (const auto& book : before_) free &= book->free_.load(std::memory_order_acquire);
    return free;
  }

  const std::uint64_t all_;
  std::atomic<std::uint64_t> free_;
  const std::vector<std::shared_ptr<FrameBook>> before_;
};

// Keeps an arena mapped as long as arrays are views of it, and `held`, the owner of their rows, if there is one.
struct Lease {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<const void> held;
};

// A frame that can be lent. It is lent from `begin` to `end`.
class HeldFrame {
 public:
  HeldFrame(std::shared_ptr<FrameBook> book, std::uint32_t frame) : book_(std::move(book)), frame_(frame) {}
  HeldFrame(const HeldFrame&) = delete;
  HeldFrame& operator=(const HeldFrame&) = delete;
  ~HeldFrame() { end(); }

  // `begin` lends the frame, after the pool has taken it from the FrameBook. `end` gives the frame back.
  void begin() { is_lent_ = true; }
  void end() {
    if (std::exchange(is_lent_, false)) book_->give_back(frame_);
  }

 private:
  std::shared_ptr<FrameBook> book_;
  std::uint32_t frame_;
  bool is_lent_ = false;
};

}  // namespace remuda
