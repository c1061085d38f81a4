// The memory of rollouts: who has which of the rows beyond the frames, and which of these have memory.
//
// A rollout takes its rows in one piece.  What it gives back keeps its memory for the next one; where that does not fit
// into any such piece, all of them lose theirs first.  So what is reserved is what the rollouts that are held need, and
// what the latest ones that are not held needed.
//
// Rollouts are given back by whoever drops the last array of one, in whatever thread; the rest is the pool's thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shm/arena.hpp"

namespace remuda {

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

  // So many rows; returns the first.  Throws std::system_error when there is no memory for them.
  std::uint32_t take(std::uint32_t rows);
  void give_back(std::uint32_t first);
  // These rows have no result.
  void clear(std::uint32_t first, std::uint32_t rows) const;
  // How many bytes `take` would have to reserve.
  std::uint64_t bytes_to_reserve(std::uint32_t rows) const;

  // Another column, which gets memory for the rollouts that there are.  Throws std::system_error; then it is none.
  void add_column(Rows rows);

  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  struct Piece {
    std::uint32_t first, rows;
    bool is_taken;
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
  mutable std::mutex mutex_;
  std::vector<Rows> columns_;
  Pieces pieces_;  // that have memory, by their first rows
};

// Rows of a store, from `first` on, without results. They are returned when this ends.
class TakenRows {
 public:
  // Throws std::system_error when there is no memory for them.
  TakenRows(std::shared_ptr<RolloutStore> store, std::uint32_t rows)
      : store_(std::move(store)), first_(store_->take(rows)) {
    clear(0, rows);
  }
  ~TakenRows() { store_->give_back(first_); }
  TakenRows(const TakenRows&) = delete;
  TakenRows& operator=(const TakenRows&) = delete;

  std::uint32_t first() const { return first_; }
  // So many rows from the i-th on have no result.
  void clear(std::uint32_t i, std::uint32_t rows) const { store_->clear(first_ + i, rows); }
  const std::shared_ptr<Arena>& arena() const { return store_->arena(); }

 private:
  const std::shared_ptr<RolloutStore> store_;
  const std::uint32_t first_;
};

}  // namespace remuda
