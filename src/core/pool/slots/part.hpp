// A part of the pool: its slots, in whose frames their results lie, and which of these have come.
//
// A command to all slots of a part fills a frame that can be leased; any other fills rows of the scratch frame, where a
// slot's row is free because a slot has one command at a time.  While the part has a rollout, its steps fill the rows
// of that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pool/batches/frames.hpp"
#include "pool/rollouts/rollout.hpp"
#include "pool/slots/slots.hpp"

namespace remuda {

// Neighbouring slots whose results lie in neighbouring rows.
struct Run {
  std::uint32_t slot, row, count, flags;
};

// The same rows env by env, in the order of these slots, which are those of the runs; each env has `width` of them.
std::vector<Run> in_order(const std::vector<Run>& runs, const std::vector<std::uint32_t>& slots, std::uint32_t width);

class Part {
 public:
  // `slots`: ascending, whose rows lie one after another in each frame from `first_position` on.  `frame_rows`: of a
  // whole frame.  The book is of the frames 1, 2, ...; 0 is the scratch frame.
  Part(std::vector<std::uint32_t> slots, std::uint32_t first_position, std::uint32_t frame_rows,
       std::shared_ptr<FrameBook> book, std::uint32_t frames)
      : slots_(std::move(slots)),
        first_position_(first_position),
        frame_rows_(frame_rows),
        book_(std::move(book)),
        rows_out_(frames) {}

  const std::vector<std::uint32_t>& slots() const { return slots_; }
  std::uint32_t first_position() const { return first_position_; }
  const std::shared_ptr<FrameBook>& book() const { return book_; }

  std::uint32_t in_flight() const { return in_flight_; }
  std::uint32_t ready() const { return ready_count_; }
  // Slots that were sent something of which the part was not told yet what came of it.
  std::uint32_t pending() const { return in_flight_ + ready_count_ + unraised_; }
  // Slots that are ready, or have failed.
  std::uint32_t done() const { return ready_count_ + reported_ + unraised_; }

  // So many slots are in flight from now on; returns the frame that their results go to.
  std::uint32_t send(std::uint32_t count);

  // From now on steps fill this, of these slots and perhaps others, whose actions lie so many rows before their
  // results. Nothing is pending that fills the one before.
  void begin(std::shared_ptr<Rollout> rollout, std::uint32_t action_shift);
  // Steps fill it no more; what is pending still does.
  void end_rollout();
  // That which steps fill, or what is pending does; null: none.
  const std::shared_ptr<Rollout>& rollout() const { return rollout_; }
  // Whether anything is pending that fills the rollout.
  bool is_filling() const { return filling_ != 0; }
  // The row for each of these slots that is sent such a command, which is in flight from now on; kNoRow of those whose
  // results go elsewhere.  Empty where they all do.
  static constexpr std::uint32_t kNoRow = 0xffffffff;
  std::vector<std::uint32_t> send_to_rollout(Op op, const std::vector<std::uint32_t>& targets, const Slots& slots);
  // Results have been handed out.
  void fill(std::span<const Run> runs);
  // Whether a row is a rollout's.
  bool is_in_rollout(std::uint32_t row) const { return row / frame_rows_ >= rows_out_.size(); }

  // Where the action of a slot at a position goes, or the first of all of them, that is sent a step next; and of one
  // whose result goes to that row.
  std::uint32_t next_action_row(std::uint32_t position) const {
    const bool is_there = rollout_ && rollout_->wants(Op::kStep, position);
    return is_there ? rollout_->next_row(position) - action_shift_ : position;
  }
  bool has_actions_in_order() const {
    return !rollout_ || rollout_->is_even(first_position_, static_cast<std::uint32_t>(slots_.size()));
  }
  std::uint32_t action_row(std::uint32_t row, std::uint32_t position) const {
    return row < first_result_ ? position : row - action_shift_;
  }

  // Slots in flight have results now.
  void finish(const Run& run);
  // A slot is no longer in flight, and has no result.
  void drop(std::uint32_t row);
  // A slot is no longer in flight, and has a failure to be raised.
  void fail(std::uint32_t row);
  // Failed slots become idle, because their failures were raised or dropped.
  void release_failed(Slots& slots);
  // A worker has reported the failure of so many slots, which stay in flight until the pool has decided on it.
  void count_reported(std::uint32_t slots) { reported_ += slots; }
  void discount_reported(std::uint32_t slots) { reported_ -= slots; }

  // Removes the runs of up to `limit` ready slots, the first to arrive.  Their rows stay taken.
  std::vector<Run> take(std::uint32_t limit);
  // Whether these are all rows of a frame that can be leased.
  bool is_whole_frame(std::span<const Run> runs) const;
  // The frame's rows are the lease's from now on, which gives it back.
  std::uint32_t lend(std::uint32_t row);
  // Rows have been dealt with: a frame goes back to the book with its last one.
  void free_rows(std::uint32_t row, std::uint32_t count);

 private:
  void free_rows_of_rollout(std::uint32_t row, std::uint32_t count);

  std::vector<std::uint32_t> slots_;
  std::uint32_t first_position_, frame_rows_;
  std::shared_ptr<FrameBook> book_;
  std::vector<std::uint32_t> rows_out_;  // per frame: sent and not yet dealt with
  std::vector<Run> ready_;               // in the order of arrival
  std::uint32_t ready_count_ = 0;        // of their slots
  std::uint32_t in_flight_ = 0;
  std::uint32_t reported_ = 0;  // of those
  std::uint32_t unraised_ = 0;  // slots that have failed
  std::shared_ptr<Rollout> rollout_;
  std::uint32_t filling_ = 0;                               // rows of it that are sent and not yet dealt with
  std::uint32_t first_result_ = kNoRow, action_shift_ = 0;  // of the latest rollout
};

}  // namespace remuda
