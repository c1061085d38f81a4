// The state of each slot's command and the state of its episode. Only this class changes them.
//
// A command changes its state
//
//   idle           -> in flight       when the command is sent
//   in flight      -> ready           when its result arrives
//   in flight      -> awaiting spare  when its result ends the episode, and a spare env is to begin the next in the row
//   in flight      -> orphaned        when its env fails, or its worker dies
//   awaiting spare -> orphaned        when it is the slot's turn to take a spare
//   orphaned       -> in flight       when the command is sent again, or the rebuilt env is to reset into its row
//   orphaned       -> ready           when the pool makes the result
//   orphaned       -> awaiting spare  when a spare env is to replace the env that failed, and to reset into its row
//   orphaned       -> idle            when the command gets no result
//   orphaned       -> failed          when the command gets no result, and its part must raise the failure
//   failed         -> idle            when the failure is raised or dropped
//   ready          -> idle            when the result is taken
//
// An episode changes its state
//
//   goes on        -> over            when the result that ends it is taken, if the pool begins the next episode itself
//   goes on        -> cut off         when its worker dies between two commands of the slot, so that no result ends it
//   over, cut off  -> goes on         when the next command is sent; its answer ends the episode or begins another
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "ipc/protocol.hpp"

namespace remuda {

enum class SlotState : std::uint8_t { kIdle, kInFlight, kAwaitingSpare, kOrphaned, kReady, kFailed };

enum class Episode : std::uint8_t {
  kGoesOn,
  kOver,
  kCutOff,  // The next result, which the pool makes, ends the episode.
};

class Slots {
 public:
  struct Slot {
    std::uint32_t part = 0;
    std::uint32_t position = 0;  // the position of the slot's row in a frame
    SlotState state = SlotState::kIdle;
    Episode episode = Episode::kGoesOn;
    Op op = Op::kReset;            // The op of the last command.
    std::uint32_t row = 0;         // The row for the last command's result.
    std::uint64_t sequence = 0;    // The number of the last command, another one each time that it is sent.
    std::uint64_t order = 0;       // Its number when it was sent for the first time.
    std::uint32_t action_row = 0;  // The row of the last step's action.
  };

  explicit Slots(std::uint32_t count) : slots_(count) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(slots_.size()); }
  const Slot& operator[](std::uint32_t slot) const { return slots_[slot]; }
  void place(std::uint32_t slot, std::uint32_t part, std::uint32_t position) {
    slots_[slot].part = part;
    slots_[slot].position = position;
  }

  // -- the command; each function throws std::logic_error for a change that the table above does not permit --

  void send(std::uint32_t slot, Op op, std::uint32_t row) {
    move<SlotState::kIdle>(slot, SlotState::kInFlight);
    slots_[slot].op = op;
    slots_[slot].row = row;
    slots_[slot].order = 0;
  }
  // Sends one command to `count` neighbours. Their rows are neighbours from `row` on, and those of their actions from
  // `action_row` on, if the command is a step.
  void send_run(std::uint32_t first, std::uint32_t count, Op op, std::uint32_t row, std::uint32_t action_row) {
    for (std::uint32_t i = 0; i < count; ++i) {
      send(first + i, op, row + i);
      if (op == Op::kStep) slots_[first + i].action_row = action_row + i;
    }
  }
  void finish(std::uint32_t slot) { move<SlotState::kInFlight>(slot, SlotState::kReady); }
  void await_spare(std::uint32_t slot) {
    move<SlotState::kInFlight, SlotState::kOrphaned>(slot, SlotState::kAwaitingSpare);
  }
  void orphan(std::uint32_t slot) { move<SlotState::kInFlight, SlotState::kAwaitingSpare>(slot, SlotState::kOrphaned); }
  void resend(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kInFlight); }
  void answer(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kReady); }
  void drop(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kIdle); }
  void fail(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kFailed); }
  void release(std::uint32_t slot) { move<SlotState::kFailed>(slot, SlotState::kIdle); }
  void take(std::uint32_t slot) { move<SlotState::kReady>(slot, SlotState::kIdle); }

  // Replaces the op of a command that is in flight.
  void set_op(std::uint32_t slot, Op op) { slots_[slot].op = op; }
  void set_sequence(std::uint32_t slot, std::uint64_t sequence) {
    slots_[slot].sequence = sequence;
    if (slots_[slot].order == 0) slots_[slot].order = sequence;
  }
  void set_action_row(std::uint32_t slot, std::uint32_t row) { slots_[slot].action_row = row; }
  // Returns the order of the first step that may still end an episode: a step that is in flight, or that is orphaned
  // and not decided on yet. Returns the largest number if there is no such step.
  std::uint64_t first_open_step() const {
    std::uint64_t first = ~std::uint64_t{0};
    for (const Slot& slot : slots_) {
      const bool is_open = slot.state == SlotState::kInFlight || slot.state == SlotState::kOrphaned;
      if (is_open && slot.op == Op::kStep) first = std::min(first, slot.order);
    }
    return first;
  }

  // -- the episode -------------------------------------------------------------------------------------------

  void end_episode(std::uint32_t slot) { become(slots_[slot], Episode::kOver); }
  void cut_off(std::uint32_t slot) { become(slots_[slot], Episode::kCutOff); }
  void go_on(std::uint32_t slot) { become(slots_[slot], Episode::kGoesOn); }
  bool is_cut_off(std::uint32_t slot) const { return slots_[slot].episode == Episode::kCutOff; }
  bool any_cut_off() const { return cut_off_ != 0; }
  bool any_over() const { return over_ != 0; }

 private:
  template <SlotState... from>
  void move(std::uint32_t slot, SlotState to) {
    SlotState& state = slots_[slot].state;
    if (((state != from) && ...)) throw std::logic_error("a slot changes its state as slots.hpp permits");
    state = to;
  }
  void become(Slot& slot, Episode episode) {
    cut_off_ += episode == Episode::kCutOff;
    cut_off_ -= slot.episode == Episode::kCutOff;
    over_ += episode == Episode::kOver;
    over_ -= slot.episode == Episode::kOver;
    slot.episode = episode;
  }

  std::vector<Slot> slots_;
  std::uint32_t cut_off_ = 0, over_ = 0;  // the numbers of slots with an episode that was cut off, or is over
};

}  // namespace remuda
