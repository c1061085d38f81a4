// The memory of rollouts: the rows beyond the frames, the rollouts that hold them, and the rows that have memory.
//
// A rollout takes its rows in one piece. A piece that is given back keeps its memory for the next rollout. If no such
// piece is large enough, all of them lose their memory first. So the store reserves what the held rollouts need, and
// what the latest released ones needed.
//
// Any thread may give rows back, when it drops the last array of a rollout. Everything else belongs to the pool's
// thread. Giving back is one store to a flag, so no forked child can inherit a lock that is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

// Rows that are held. The destructor gives them back. May outlive the store.
class HeldRows {
 public:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  HeldRows(std::uint32_t first, Flag is_held) : first_(first), is_held_(std::move(is_held)) {}
  HeldRows(HeldRows&&) = default;
  HeldRows& operator=(HeldRows&&) = delete;
  ~HeldRows() {
    if (is_held_) is_held_->store(false, std::memory_order_release);  // edge "give back"
  }

  std::uint32_t first() const { return first_; }

 private:
  std::uint32_t first_;
  Flag is_held_;  // null: moved from
};

class RolloutStore {
 public:
  // The rows of one column: the bytes of a row, and the offset of the first row that rollouts may have.
  struct Rows {
    std::uint64_t offset, bytes;
    bool is_cleared = false;  // whether rows without a result are zeros: rewards and flags
  };

  // `count`: the number of rows that rollouts may have.
  RolloutStore(std::shared_ptr<Arena> arena, std::uint32_t count, std::vector<Rows> columns)
      : arena_(std::move(arena)), count_(count), columns_(std::move(columns)) {}

  // Takes `rows` rows. Throws std::system_error if memory runs out.
  HeldRows take(std::uint32_t rows);
  // Clears rows that have no result.
  void clear(std::uint32_t first, std::uint32_t rows) const;
  // The number of bytes that `take` would have to reserve.
  std::uint64_t bytes_to_reserve(std::uint32_t rows);

  // Adds a column, with memory for the existing rollouts. Throws std::system_error if memory runs out, and adds nothing
  // then.
  void add_column(Rows rows);

  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  struct Piece {
    std::uint32_t first, rows;
    HeldRows::Flag is_held;  // null: not held since it was split off a larger piece

    // Acquire: the holder's last access comes before the next write.
    bool is_free() const { return !is_held || !is_held->load(std::memory_order_acquire); }  // edge "give back"
    HeldRows hold() {
      is_held = std::make_shared<std::atomic<bool>>(true);
      return {first, is_held};
    }
  };
  using Pieces = std::vector<Piece>;

  Pieces::iterator find_free(std::uint32_t rows);
  std::uint32_t find_gap(std::uint32_t rows) const;
  void drop_free();
  void merge_free();
  Stretch stretch(const Rows& column, const Piece& piece) const {
    return {column.offset + piece.first * column.bytes, piece.rows * column.bytes};
  }
  std::uint64_t bytes_of_row() const;
  void reserve(const Piece& piece) const;
  void release(const Piece& piece) const;

  const std::shared_ptr<Arena> arena_;
  const std::uint32_t count_;
  std::vector<Rows> columns_;
  Pieces pieces_;  // those with memory, by first row
};

}  // namespace remuda
