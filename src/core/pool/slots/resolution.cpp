#include "pool/slots/resolution.hpp"

namespace remuda {

void Resolution::drop(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) {
    slots_.drop(slot);
    parts_.of(slot).drop(slots_[slot].row);
  });
}

void Resolution::fail(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) {
    slots_.fail(slot);
    parts_.of(slot).fail(slots_[slot].row);
  });
}

void Resolution::resend(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) { slots_.resend(slot); });
}

void Resolution::repeat_last(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) {
    slots_.answer(slot);
    last_results_.repeat(seating_.env_of(slot), slots_[slot].row);
  });
  finish(first);
}

void Resolution::end_episode(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) {
    slots_.answer(slot);
    last_results_.end_episode(seating_.env_of(slot), slots_[slot].row);
  });
  finish(first);
}

void Resolution::finish(std::uint32_t first) { parts_.of(first).finish({first, slots_[first].row, width_, kHasBlob}); }

Resolution::Next Resolution::reset_into_row(std::uint32_t first, bool is_complete) {
  if (!is_complete) {
    each(first,
         [this](std::uint32_t slot) { last_results_.end_before_reset(seating_.env_of(slot), slots_[slot].row); });
    if (seating_.has_spares()) {
      await_spare(first);
      return Next::kAwaitSpare;
    }
  }
  each(first, [this](std::uint32_t slot) {
    slots_.resend(slot);
    slots_.set_op(slot, Op::kResetIntoRow);
  });
  return Next::kSend;
}

// Only for envs of width 1, because vector envs have no spares.
void Resolution::await_spare(std::uint32_t slot) {
  slots_.await_spare(slot);
  seating_.ask_for_spare(slot, slots_[slot].sequence);
}

bool Resolution::defer_end(std::uint32_t first, bool into_reset) {
  if (slots_[first].state == SlotState::kAwaitingSpare) return false;
  each(first, [this, into_reset](std::uint32_t slot) { slots_.cut_off(slot, into_reset); });
  return true;
}

std::optional<Resolution::Next> Resolution::deliver_end(std::uint32_t first, std::uint64_t sequence) {
  const bool into_reset = slots_[first].episode == Episode::kCutOffIntoReset;
  each(first, [this](std::uint32_t slot) { slots_.go_on(slot); });
  if (slots_[first].op == Op::kReset) return std::nullopt;
  each(first, [this, sequence](std::uint32_t slot) {
    slots_.orphan(slot);
    slots_.set_sequence(slot, sequence);  // The pool answers the command itself, so the command counts as sent now.
  });
  if (into_reset) return reset_into_row(first, false);
  end_episode(first);
  return Next::kAnswered;
}

void Resolution::answer_observe(std::uint32_t first) {
  each(first, [this](std::uint32_t slot) { slots_.orphan(slot); });
  repeat_last(first);
}

}  // namespace remuda
