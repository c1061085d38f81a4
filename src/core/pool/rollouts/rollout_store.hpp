// The memory of rollouts: who has which of the rows beyond the frames, and which of these have memory.
//
// A rollout takes its rows in one piece.  What it gives back keeps its memory for the next one; where that does not fit
// into any such piece, all of them lose theirs first.  So what is reserved is what the rollouts that are held need, and
// what the latest ones that are not held needed.
//
// Any thread may give rows back, when it drops the last array of a rollout; the rest is the pool's thread's.  Giving
// back is one store to a flag, so there is no lock that a forked copy of the process could inherit while it is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

// Rows that are held; destroying this gives them back.  It may outlive the store.
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
  // Of a column: how many bytes a row has, and where the first row is that rollouts may have.
  struct Rows {
    std::uint64_t offset, bytes;
    bool is_cleared = false;  // Whether rows without a result are zeros: rewards and flags.
  };

  // `count`: of the rows there are.
  RolloutStore(std::shared_ptr<Arena> arena, std::uint32_t count, std::vector<Rows> columns)
      : arena_(std::move(arena)), count_(count), columns_(std::move(columns)) {}

  // So many rows.  Throws std::system_error when there is no memory for them.
  HeldRows take(std::uint32_t rows);
  // These rows have no result.
  void clear(std::uint32_t first, std::uint32_t rows) const;
  // How many bytes `take` would have to reserve.
  std::uint64_t bytes_to_reserve(std::uint32_t rows);

  // Another column, which gets memory for the rollouts that there are.  Throws std::system_error; then it is none.
  void add_column(Rows rows);

  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  struct Piece {
    std::uint32_t first, rows;
    HeldRows::Flag is_held;  // null: nothing has held it since it was cut off

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
  Pieces pieces_;  // that have memory, by their first rows
};

}  // namespace remuda
