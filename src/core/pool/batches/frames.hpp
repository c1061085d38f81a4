// The frames of a pool, or of a part of one, and who holds them.
//
// A batch is a view of a frame, and holds a lease on it: the arrays' base object is the lease, so the
// frame comes back when the last array (or view of one, or tensor made from one) is gone, in whatever
// thread that happens, or when it is found that nobody but us holds any (lent_frames.hpp).  The book is shared with the
// leases because they may outlive the pool.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

class FrameBook {
 public:
  static constexpr std::uint32_t kMaxFrames = 64;  // the bits of a word

  // `before`: all books of how the pool was divided before.  What is still held of theirs is not free.  One flat list:
  // were each asked for those before it in turn, every division would double the work.
  explicit FrameBook(std::uint32_t frames, std::vector<std::shared_ptr<FrameBook>> before = {})
      : all_(all(frames)), free_(all_), before_(std::move(before)) {}
  bool any_free() const { return free() != 0; }
  // Whether nobody holds a frame of this book, whatever is held of others.
  bool all_back() const { return free_.load(std::memory_order_acquire) == all_; }

  // Those that are lent or in use, by bit; of this book alone.
  std::uint64_t taken() const { return all_ & ~free_.load(std::memory_order_acquire); }

  // The caller is the pool's one thread, and has made sure that a frame is free.
  std::uint32_t take() {
    auto frame = static_cast<std::uint32_t>(std::countr_zero(free()));
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

  std::uint64_t free() const {
    std::uint64_t free = free_.load(std::memory_order_acquire);
    for (const auto& book : before_) free &= book->free_.load(std::memory_order_acquire);
    return free;
  }

  const std::uint64_t all_;
  std::atomic<std::uint64_t> free_;
  const std::vector<std::shared_ptr<FrameBook>> before_;
};

// Keeps memory that arrays are views of, and the arena that it is of.
class Lease {
 public:
  explicit Lease(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
  virtual ~Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  std::shared_ptr<Arena> arena_;
};

// Of a frame, which is lent from the beginning on.
class FrameLease final : public Lease {
 public:
  FrameLease(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame)
      : Lease(std::move(arena)), book_(std::move(book)), frame_(frame) {}
  ~FrameLease() override { end(); }

  // Gives the frame back to the book; and it is lent once more, by whoever has taken it from there.
  void end() {
    if (std::exchange(is_lent_, false)) book_->give_back(frame_);
  }
  void begin() { is_lent_ = true; }

 private:
  std::shared_ptr<FrameBook> book_;
  std::uint32_t frame_;
  bool is_lent_ = true;
};

}  // namespace remuda
