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
#include <utility>
#include <vector>

#include "ipc/protocol.hpp"

namespace remuda {

// Of 32 bits, as the other facts about a slot, so that the compiler vectorizes loops over neighbours alike.
enum class SlotState : std::uint32_t { kIdle, kInFlight, kAwaitingSpare, kOrphaned, kReady, kFailed };

enum class Episode : std::uint8_t {
  kGoesOn,
  kOver,
  kCutOff,  // The next result, which the pool makes, ends the episode.
};

class Slots {
 public:
  struct Slot {
    std::uint32_t part, position;  // `position`: of the slot's row in a frame
    SlotState state;
    Episode episode;
    Op op;                          // The op of the last command.
    std::uint32_t row, action_row;  // The rows for the last command's result, and of the last step's action.
    std::uint64_t sequence;         // The number of the last command, another one each time that it is sent.
    std::uint64_t order;            // Its number when it was sent for the first time.
  };

  explicit Slots(std::uint32_t count)
      : parts_(count),
        positions_(count),
        states_(count),
        episodes_(count),
        ops_(count),
        rows_(count),
        action_rows_(count),
        sequences_(count),
        orders_(count) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(states_.size()); }
  Slot operator[](std::uint32_t slot) const {
    return {parts_[slot], positions_[slot],   states_[slot],    episodes_[slot], ops_[slot],
            rows_[slot],  action_rows_[slot], sequences_[slot], orders_[slot]};
  }
  std::uint32_t part_of(std::uint32_t slot) const { return parts_[slot]; }
  std::uint32_t position_of(std::uint32_t slot) const { return positions_[slot]; }
  Op op_of(std::uint32_t slot) const { return ops_[slot]; }
  void place(std::uint32_t slot, std::uint32_t part, std::uint32_t position) {
    parts_[slot] = part;
    positions_[slot] = position;
  }

  // -- the command; each function throws std::logic_error for a change that the table above does not permit --
  // These change `count` neighbours from slot `first` on.

  // Sends a command. The rows are neighbours from `row` on, and those of the actions from `action_row` on, if the
  // command is a step.
  void send(std::uint32_t first, Op op, std::uint32_t row, std::uint32_t count = 1, std::uint32_t action_row = 0) {
    move<SlotState::kIdle>(first, SlotState::kInFlight, count);
    std::fill_n(&ops_[first], count, op);
    number_from(row, &rows_[first], count);
    if (op == Op::kStep) number_from(action_row, &action_rows_[first], count);
  }
  void finish(std::uint32_t first, std::uint32_t count = 1) {
    move<SlotState::kInFlight>(first, SlotState::kReady, count);
  }
  void take(std::uint32_t first, std::uint32_t count = 1) { move<SlotState::kReady>(first, SlotState::kIdle, count); }
  void await_spare(std::uint32_t slot) {
    move<SlotState::kInFlight, SlotState::kOrphaned>(slot, SlotState::kAwaitingSpare);
  }
  void orphan(std::uint32_t slot) { move<SlotState::kInFlight, SlotState::kAwaitingSpare>(slot, SlotState::kOrphaned); }
  void resend(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kInFlight); }
  void answer(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kReady); }
  void drop(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kIdle); }
  void fail(std::uint32_t slot) { move<SlotState::kOrphaned>(slot, SlotState::kFailed); }
  void release(std::uint32_t slot) { move<SlotState::kFailed>(slot, SlotState::kIdle); }

  // Replaces the op of a command that is in flight.
  void set_op(std::uint32_t slot, Op op) { ops_[slot] = op; }
  // Numbers the command of `count` neighbours. `is_first`: whether it is sent for the first time.
  void set_sequence(std::uint32_t first, std::uint64_t sequence, std::uint32_t count = 1, bool is_first = true) {
    std::fill_n(&sequences_[first], count, sequence);
    if (is_first) std::fill_n(&orders_[first], count, sequence);
  }
  void set_action_row(std::uint32_t slot, std::uint32_t row) { action_rows_[slot] = row; }
  // Returns whether these neighbours wait for results, in neighbouring rows from `row` on.
  bool are_in_flight(std::uint32_t first, std::uint32_t count, std::uint32_t row) const {
    std::uint32_t differing = 0;
    const std::uint32_t* rows = &rows_[first];
    for (std::uint32_t i = 0; i < count; ++i) differing |= rows[i] ^ (row + i);
    return differing == 0 && are_in<SlotState::kInFlight>(first, count);
  }
  // Returns the order of the first step that may still end an episode: a step that is in flight, or that is orphaned
  // and not decided on yet. Returns the largest number if there is no such step.
  std::uint64_t first_open_step() const {
    std::uint64_t first = ~std::uint64_t{0};
    for (std::uint32_t slot = 0; slot < count(); ++slot) {
      const bool is_open = are_in<SlotState::kInFlight, SlotState::kOrphaned>(slot, 1);
      if (is_open && ops_[slot] == Op::kStep) first = std::min(first, orders_[slot]);
    }
    return first;
  }

  // -- the episode -------------------------------------------------------------------------------------------

  void end_episode(std::uint32_t slot) { become(slot, Episode::kOver); }
  void cut_off(std::uint32_t slot) { become(slot, Episode::kCutOff); }
  void go_on(std::uint32_t slot) { become(slot, Episode::kGoesOn); }
  bool is_cut_off(std::uint32_t slot) const { return episodes_[slot] == Episode::kCutOff; }
  bool any_cut_off() const { return cut_off_ != 0; }
  bool any_over() const { return over_ != 0; }

 private:
  // The loops below have neither branches nor calls, so that the compiler vectorizes them.
  static void number_from(std::uint32_t number, std::uint32_t* rows, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) rows[i] = number + i;
  }
  template <SlotState... wanted>
  bool are_in(std::uint32_t first, std::uint32_t count) const {
    std::uint32_t others = 0;
    const SlotState* states = &states_[first];
    for (std::uint32_t i = 0; i < count; ++i) others |= ((states[i] != wanted) & ...);
    return others == 0;
  }
  template <SlotState... from>
  void move(std::uint32_t first, SlotState to, std::uint32_t count = 1) {
    if (!are_in<from...>(first, count)) throw std::logic_error("a slot changes its state as slots.hpp permits");
    std::fill_n(&states_[first], count, to);
  }
  void become(std::uint32_t slot, Episode episode) {
    const Episode before = std::exchange(episodes_[slot], episode);
    cut_off_ += episode == Episode::kCutOff;
    cut_off_ -= before == Episode::kCutOff;
    over_ += episode == Episode::kOver;
    over_ -= before == Episode::kOver;
  }

  // An array for each fact, because a command to all envs reads or writes the same fact of many neighbours.
  std::vector<std::uint32_t> parts_, positions_;
  std::vector<SlotState> states_;
  std::vector<Episode> episodes_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> rows_, action_rows_;
  std::vector<std::uint64_t> sequences_, orders_;
  std::uint32_t cut_off_ = 0, over_ = 0;  // the numbers of slots with an episode that was cut off, or is over
};

}  // namespace remuda
