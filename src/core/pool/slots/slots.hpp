// The states of each slot's command and episode. Only this class changes them.
//
// The command:
//
//   idle           -> in flight       the command is sent
//   in flight      -> ready           its result has arrived
//   in flight      -> awaiting spare  its result ended the episode; a spare env makes the first observation of the next
//   in flight      -> orphaned        its env failed, or its worker died
//   awaiting spare -> orphaned        it is the slot's turn to take a spare
//   orphaned       -> in flight       the command is sent again, or the rebuilt env resets into its row
//   orphaned       -> ready           the pool makes the result
//   orphaned       -> awaiting spare  a spare env replaces the env that failed, and resets into its row
//   orphaned       -> idle            the command has no result
//   orphaned       -> failed          the command has no result, and its part must raise the failure
//   failed         -> idle            the failure was raised or dropped
//   ready          -> idle            the result is taken
//
// The episode, as far as it matters to the slot's next command:
//
//   goes on        -> over            the result that ends it is taken, and the pool begins the next episode itself
//   goes on        -> cut off         its worker died while the slot was idle or ready, and no result has ended it yet
//   over, cut off  -> goes on         the next command is sent; its answer ends the episode or begins another
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/protocol.hpp"

namespace remuda {

enum class SlotState : std::uint8_t { kIdle, kInFlight, kAwaitingSpare, kOrphaned, kReady, kFailed };

enum class Episode : std::uint8_t {
  kGoesOn,
  kOver,
  kCutOff,           // the next result, which the pool makes, ends it
  kCutOffIntoReset,  // same as kCutOff, and the rebuilt env resets into the row of that result (same-step autoreset)
};

class Slots {
 public:
  struct Slot {
    std::uint32_t part = 0;
    std::uint32_t position = 0;  // of its row in a frame
    SlotState state = SlotState::kIdle;
    Episode episode = Episode::kGoesOn;
    Op op = Op::kReset;            // of its last command
    std::uint32_t row = 0;         // of the result of its last command
    std::uint64_t sequence = 0;    // the number of its last command
    std::uint32_t action_row = 0;  // of its last step
  };

  explicit Slots(std::uint32_t count) : slots_(count) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(slots_.size()); }
  const Slot& operator[](std::uint32_t slot) const { return slots_[slot]; }
  void place(std::uint32_t slot, std::uint32_t part, std::uint32_t position) {
    slots_[slot].part = part;
    slots_[slot].position = position;
  }

  // -- the command: each throws std::logic_error for a change that is not in the table above --------------

  void send(std::uint32_t slot, Op op, std::uint32_t row) {
    move<SlotState::kIdle>(slot, SlotState::kInFlight);
    slots_[slot].op = op;
    slots_[slot].row = row;
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

  // Replaces the caller's op in a command that is in flight.
  void set_op(std::uint32_t slot, Op op) { slots_[slot].op = op; }
  void set_sequence(std::uint32_t slot, std::uint64_t sequence) { slots_[slot].sequence = sequence; }
  void set_action_row(std::uint32_t slot, std::uint32_t row) { slots_[slot].action_row = row; }
  // The sequence of the first step that may still end an episode: in flight, or orphaned without a decision. Returns
  // the largest number if no slot has such a step.
  std::uint64_t first_open_step() const;
  bool any_orphaned_step() const;

  // -- the episode -------------------------------------------------------------------------------------------

  void end_episode(std::uint32_t slot) { become(slots_[slot], Episode::kOver); }
  void cut_off(std::uint32_t slot, bool into_reset) {
    become(slots_[slot], into_reset ? Episode::kCutOffIntoReset : Episode::kCutOff);
  }
  void go_on(std::uint32_t slot) { become(slots_[slot], Episode::kGoesOn); }
  bool is_cut_off(std::uint32_t slot) const { return is_cut_off(slots_[slot].episode); }
  bool any_cut_off() const { return cut_off_ != 0; }

 private:
  static constexpr bool is_cut_off(Episode episode) {
    return episode == Episode::kCutOff || episode == Episode::kCutOffIntoReset;
  }
  template <SlotState... from>
  void move(std::uint32_t slot, SlotState to) {
    SlotState& state = slots_[slot].state;
    if (((state != from) && ...)) refuse(state, to);
    state = to;
  }
  [[noreturn]] static void refuse(SlotState from, SlotState to);
  void become(Slot& slot, Episode episode) {
    cut_off_ += is_cut_off(episode);
    cut_off_ -= is_cut_off(slot.episode);
    slot.episode = episode;
  }

  std::vector<Slot> slots_;
  std::uint32_t cut_off_ = 0;  // slots with an episode that is cut off
};

}  // namespace remuda
