// The memory of rollouts: the rows after the frames. Records which rows have memory, and which of them rollouts hold.
//
// A rollout takes its rows in one piece. A piece that is given back keeps its memory for the next rollout of the same
// size. If no free piece has this size, all free pieces lose their memory before the new rollout gets any.
//
// Any thread may give rows back, when it frees the last array of a rollout. Only the pool's thread may do anything
// else. Giving back is one store to a flag. So it takes no lock that a forked child could inherit in the locked state.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

// Rows that a rollout holds. The destructor gives them back to the store. May outlive the store.
class HeldRows {
 public:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  HeldRows(std::uint32_t first, Flag is_held) : first_(first), is_held_(std::move(is_held)) {}
  HeldRows(HeldRows&&) = default;
  HeldRows& operator=(HeldRows&&) = delete;
  ~HeldRows() {
    if (is_held_) is_held_->store(false, std::memory_order_release);  // pairs with the acquire in `is_free`
  }

  std::uint32_t first() const { return first_; }

 private:
  std::uint32_t first_;
  Flag is_held_;  // null after a move
};

class RolloutStore {
 public:
  // The rows of one column that rollouts may have: the offset of the first one, and the bytes of a row.
  struct Rows {
    std::uint64_t offset, bytes;
    // Whether rows without a result are set to zero, as those of rewards and flags are.
    bool is_cleared = false;
  };

  // `count`: the number of rows that rollouts may have.
  RolloutStore(std::shared_ptr<Arena> arena, std::uint32_t count, std::vector<Rows> columns)
      : arena_(std::move(arena)), count_(count), columns_(std::move(columns)) {}

  // Takes `rows` rows. Throws std::system_error if memory runs out.
  HeldRows take(std::uint32_t rows);
  // Sets rows to zero in the columns that need it.
  void clear(std::uint32_t first, std::uint32_t rows) const;
  // The number of bytes that `take` would have to reserve.
  std::uint64_t bytes_to_reserve(std::uint32_t rows) const;

  // Adds a column, with memory for the existing rollouts. Throws std::system_error if memory runs out, and adds nothing
  // then.
  void add_column(Rows rows);

  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  struct Piece {
    std::uint32_t first, rows;
    HeldRows::Flag is_held;

    // Acquire, paired with the release in `~HeldRows`: the holder's last access comes before the next write.
    bool is_free() const { return !is_held->load(std::memory_order_acquire); }
  };

  const Piece* find_free(std::uint32_t rows) const;
  std::uint32_t find_gap(std::uint32_t rows) const;
  ByteRange range_of(const Rows& column, const Piece& piece) const {
    return {column.offset + piece.first * column.bytes, piece.rows * column.bytes};
  }
  void release(const Piece& piece) const;

  const std::shared_ptr<Arena> arena_;
  const std::uint32_t count_;
  std::vector<Rows> columns_;
  std::vector<Piece> pieces_;  // the pieces that have memory, sorted by first row
};

}  // namespace remuda
