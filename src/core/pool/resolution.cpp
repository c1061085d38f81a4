#include "pool/resolution.hpp"

namespace remuda {

void Resolution::drop(std::uint32_t slot) {
  slots_.drop(slot);
  part_of(slot).drop(slots_[slot].row);
}

void Resolution::repeat_last(std::uint32_t slot) {
  slots_.answer(slot);
  last_results_.repeat(seating_.env_of(slot), slots_[slot].row);
  finish(slot);
}

void Resolution::end_episode(std::uint32_t slot) {
  slots_.answer(slot);
  last_results_.end_episode(seating_.env_of(slot), slots_[slot].row);
  finish(slot);
}

void Resolution::finish(std::uint32_t slot) { part_of(slot).finish({slot, slots_[slot].row, 1, kHasBlob}); }

Resolution::Next Resolution::reset_into_row(std::uint32_t slot, bool is_complete) {
  if (!is_complete) {
    last_results_.end_before_reset(seating_.env_of(slot), slots_[slot].row);
    if (seating_.has_spares()) {
      await_spare(slot);
      return Next::kAwaitSpare;
    }
  }
  slots_.resend(slot);
  slots_.set_op(slot, Op::kResetIntoRow);
  return Next::kSend;
}

void Resolution::await_spare(std::uint32_t slot) {
  slots_.await_spare(slot);
  seating_.ask_for_spare(slot, slots_[slot].sequence);
}

bool Resolution::defer_end(std::uint32_t slot, bool into_reset) {
  if (slots_[slot].state == SlotState::kAwaitingSpare) return false;
  slots_.cut_off(slot, into_reset);
  return true;
}

std::optional<Resolution::Next> Resolution::deliver_end(std::uint32_t slot, std::uint64_t sequence) {
  const bool into_reset = slots_[slot].episode == Episode::kCutOffIntoReset;
  slots_.go_on(slot);
  if (slots_[slot].op == Op::kReset) return std::nullopt;
  slots_.orphan(slot);
  slots_.set_sequence(slot, sequence);  // it was sent now, though nobody is told
  if (into_reset) return reset_into_row(slot, false);
  end_episode(slot);
  return Next::kAnswered;
}

void Resolution::answer_observe(std::uint32_t slot) {
  slots_.orphan(slot);
  repeat_last(slot);
}

}  // namespace remuda
