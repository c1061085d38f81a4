// A part of the pool: its slots, the frames that receive their results, and the results that have arrived.
//
// A command to all slots of a part fills a frame that can be leased. Any other command fills rows of the scratch frame.
// The row that a slot has there is free, because a slot has one command at a time. While the part has a rollout, its
// steps fill the rows of the rollout instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pool/batches/frames.hpp"
#include "pool/rollouts/rollout.hpp"
#include "pool/slots/slots.hpp"

namespace remuda {

// A number that one thread changes at a time, and that any thread may read.
class Count {
 public:
  Count() = default;
  Count(const Count& other) : value_(other) {}
  Count& operator=(std::uint32_t value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }
  Count& operator+=(std::uint32_t by) { return *this = *this + by; }  // only one thread writes: no atomic addition
  Count& operator-=(std::uint32_t by) { return *this = *this - by; }
  operator std::uint32_t() const { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> value_{0};
};

// Neighbouring slots with results in neighbouring rows.
struct Run {
  std::uint32_t slot, row, count, flags;
};

inline bool any_has(std::uint32_t flag, const std::vector<Run>& runs) {
  return std::any_of(runs.begin(), runs.end(), [flag](const Run& run) { return (run.flags & flag) != 0; });
}

// Returns the rows of `runs`, split into one run for each env, in the order of `slots`. The runs must cover exactly
// these slots. Each env has `width` slots.
std::vector<Run> in_order(const std::vector<Run>& runs, const std::vector<std::uint32_t>& slots, std::uint32_t width);

class Part {
 public:
  // `slots`: in ascending order; their rows are neighbours in each frame, from `first_position` on. `frame_rows`: the
  // number of rows in a whole frame. `book`: lends the frames 1, 2, ...; frame 0 is the scratch frame.
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
  // The number of slots that are in flight, or ready, or that failed without the failure having been raised. Any thread
  // may call this. A slot that changes its state meanwhile may be counted twice, but is never left out.
  std::uint32_t pending() const {
    const std::uint32_t in_flight = in_flight_;  // read first, because a slot in flight becomes ready or fails
    return in_flight + ready_count_ + unraised_;
  }
  // The number of slots that are ready or have failed.
  std::uint32_t done() const { return ready_count_ + unraised_; }

  // Puts `count` slots in flight. Returns the frame that their results go to; 0 is the scratch frame. `in_rollout`: the
  // number of slots of the same command that `send_to_rollout` has put in flight.
  std::uint32_t send(std::uint32_t count, std::uint32_t in_rollout = 0);

  // Makes steps of these slots fill `rollout`, which may have slots of other parts, too. The row of an action lies
  // `action_shift` rows before the row of its result. Throws std::logic_error if the previous rollout is still being
  // filled.
  void begin(std::shared_ptr<Rollout> rollout, std::uint32_t action_shift);
  // Makes later steps fill frames again. Pending commands still fill the rollout.
  void end_rollout();
  // The rollout that steps or pending commands fill; null if the part has no rollout.
  const std::shared_ptr<Rollout>& rollout() const { return rollout_; }
  // Returns whether pending commands fill the rollout.
  bool is_filling() const { return filling_ != 0; }
  // Puts in flight those targets that have their result in the rollout. Returns a row for each target: its row in the
  // rollout, or kNoRow if its result goes elsewhere. Returns an empty vector if the part has no rollout.
  static constexpr std::uint32_t kNoRow = 0xffffffff;
  std::vector<std::uint32_t> send_to_rollout(Op op, const std::vector<std::uint32_t>& targets, const Slots& slots);
  // Marks the rows of the runs that belong to the rollout as filled. Called when their results are handed out.
  void fill(std::span<const Run> runs);
  // Returns whether the row belongs to a rollout, and not to a frame.
  bool is_in_rollout(std::uint32_t row) const { return row / frame_rows_ >= rows_out_.size(); }

  // The row of the action for the next step of the slot at `position`.
  std::uint32_t next_action_row(std::uint32_t position) const {
    const bool is_there = rollout_ && rollout_->wants(Op::kStep, position);
    return is_there ? rollout_->next_row(position) - action_shift_ : position;
  }
  // Returns whether the next actions of all slots go to neighbouring rows, which start at the row of the first slot.
  bool has_actions_in_order() const {
    return !rollout_ || rollout_->is_even(first_position_, static_cast<std::uint32_t>(slots_.size()));
  }
  // The row of the action for a command that has its result in `row`.
  std::uint32_t action_row(std::uint32_t row, std::uint32_t position) const {
    return row < first_result_ ? position : row - action_shift_;
  }

  // Moves the slots of a run from in flight to ready.
  void finish(const Run& run);
  // Removes a slot from those in flight. The slot gets no result. `row`: the row of its command.
  void drop(std::uint32_t row);
  // Removes a failed slot from those in flight, and counts its failure, which must be raised. `row`: the row of its
  // command.
  void fail(std::uint32_t row);
  // Makes failed slots idle. Called after their failures were raised or dropped.
  void release_failed(Slots& slots);

  // Returns up to `limit` ready slots, in the order of arrival, as runs (see `Run`).
  std::vector<Run> first_ready(std::uint32_t limit) const;
  // Makes these slots, which are ready, the first ones, with one run for each env. Each env has `width` slots.
  void bring_forward(const std::vector<std::uint32_t>& slots, std::uint32_t width);
  // Removes these slots from those that are ready. Throws nothing. Their rows stay in use.
  void remove_ready(std::uint32_t limit);
  // Returns whether the runs are the results of one command to all slots.
  bool are_of_all(std::span<const Run> runs) const;
  // Returns whether the runs cover all rows of a frame that can be leased.
  bool is_whole_frame(std::span<const Run> runs) const;
  // Returns whether the frame of this row may be leased.
  bool may_lend(std::uint32_t row) const { return !book_->is_reserve(number_in_book(row)); }
  // The number of the frame of this row in the part's FrameBook.
  std::uint32_t number_in_book(std::uint32_t row) const { return row / frame_rows_ - 1; }
  // Hands the frame of this row over to a lease, which will give the frame back to the part's FrameBook.
  void lend(std::uint32_t row) { rows_out_[row / frame_rows_] = 0; }
  // Frees rows that are no longer needed. Once all rows of a frame are freed, the frame can be used again.
  void free_rows(std::uint32_t row, std::uint32_t count);

 private:
  std::vector<std::uint32_t> slots_;
  std::uint32_t first_position_, frame_rows_;
  std::shared_ptr<FrameBook> book_;
  std::vector<std::uint32_t> rows_out_;  // For each frame, the number of its rows that are in use.
  std::vector<Run> ready_;               // The runs of ready slots, in the order of arrival.
  Count ready_count_;                    // The number of slots in `ready_`.
  Count in_flight_;
  bool was_sent_to_all_ = false;  // whether the latest command was sent to all slots
  // The number of failed slots with a failure that has not been raised.
  Count unraised_;
  std::shared_ptr<Rollout> rollout_;
  std::uint32_t filling_ = 0;  // The number of rows of the rollout that are in use.
  // These two describe the latest rollout: the row of its first result, and the distance from the row of a result to
  // the row of its action.
  std::uint32_t first_result_ = kNoRow, action_shift_ = 0;
};

}  // namespace remuda
