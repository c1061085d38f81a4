// A rollout: consecutive frames of neighbouring rows. The steps of some parts fill the frames, one after another.
//
// Frame 0 has the observations with which the rollout begins. The t-th step of a slot (from 0) takes its action from
// frame t of the action columns, and its result fills frame t + 1. Each slot has its own next frame. While a slot has
// frames left, all its steps fill the rollout; afterwards they fill the pool's frames again.
//
// The rows are given back to the store when the rollout's last owner drops it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ipc/protocol.hpp"
#include "pool/batches/frames.hpp"
#include "pool/rollouts/rollout_store.hpp"

namespace remuda {

class Rollout {
 public:
  // The rollout has the slots at `width` positions, from `first_position` on. `base`: the number of the store's first
  // row in the columns. Throws std::system_error if memory runs out.
  Rollout(std::shared_ptr<RolloutStore> store, std::uint32_t base, std::uint32_t first_position, std::uint32_t width,
          std::uint32_t steps)
      : store_(std::move(store)),
        piece_(store_->take(width * (steps + 1))),
        first_row_(base + piece_.first()),
        first_position_(first_position),
        width_(width),
        steps_(steps),
        next_frame_(width),
        is_filled_(width * (steps + 1)) {
    store_->clear(piece_.first(), rows());
  }

  std::uint32_t first_row() const { return first_row_; }
  std::uint32_t width() const { return width_; }
  std::uint32_t steps() const { return steps_; }
  std::uint32_t rows() const { return width_ * (steps_ + 1); }
  const std::shared_ptr<Arena>& arena() const { return store_->arena(); }

  // Returns whether the result of a command with this op, for the slot at this position, goes into the rollout.
  bool wants(Op op, std::uint32_t position) const {
    const std::uint32_t next = next_frame_[position - first_position_];
    return op == Op::kObserve ? next == 0 : op == Op::kStep && next != 0 && next <= steps_;
  }
  // The row for the next result of the slot at this position. `advance` moves it to the next frame, when a command was
  // sent that will fill the row.
  std::uint32_t next_row(std::uint32_t position) const {
    const std::uint32_t i = position - first_position_;
    return first_row_ + next_frame_[i] * width_ + i;
  }
  void advance(std::uint32_t position) { ++next_frame_[position - first_position_]; }
  // Stops the slot at this position from filling the rollout. Its next frame becomes steps + 2, which differs from
  // steps + 1 for a slot that has filled all its frames.
  void close(std::uint32_t position) { next_frame_[position - first_position_] = steps_ + 2; }

  // Returns whether `frame` is the next frame of `count` slots of the rollout. `column`: the first slot's number within
  // the rollout.
  bool is_next(std::uint32_t column, std::uint32_t count, std::uint32_t frame) const {
    const auto from = next_frame_.begin() + column;
    return std::all_of(from, from + count, [frame](std::uint32_t next) { return next == frame; });
  }
  const std::vector<std::uint32_t>& next_frames() const { return next_frame_; }  // one for each slot of the rollout

  // Returns whether `count` slots, from this position on, have the same next frame.
  bool is_even(std::uint32_t position, std::uint32_t count) const {
    return is_next(position - first_position_, count, next_frame_[position - first_position_]);
  }
  bool is_full(std::uint32_t position, std::uint32_t count) const {
    const auto from = next_frame_.begin() + (position - first_position_);
    return std::all_of(from, from + count, [this](std::uint32_t frame) { return frame > steps_; });
  }

  // The frame of a row.
  std::uint32_t frame_of(std::uint32_t row) const { return (row - first_row_) / width_; }
  // Marks rows as filled. Called when their results are handed out.
  void fill(std::uint32_t row, std::uint32_t count) {
    std::fill_n(is_filled_.begin() + (row - first_row_), count, std::uint8_t{1});
  }
  const std::vector<std::uint8_t>& is_filled() const { return is_filled_; }  // One entry for each row.
  // Sets each of these rows to zero if no result has filled it, see `RolloutStore::clear`. No command that fills one of
  // the rows may be pending.
  void settle(std::uint32_t row, std::uint32_t count) const {
    for (std::uint32_t i = row - first_row_; i < row - first_row_ + count; ++i)
      if (is_filled_[i] == 0) store_->clear(piece_.first() + i, 1);
  }

 private:
  const std::shared_ptr<RolloutStore> store_;
  const HeldRows piece_;
  const std::uint32_t first_row_, first_position_, width_, steps_;
  std::vector<std::uint32_t> next_frame_;  // One entry for each slot.
  std::vector<std::uint8_t> is_filled_;    // One entry for each row.
};

}  // namespace remuda
