// Tests that neighbouring slots change their state together, and only if each of them may, and that episodes
// that were cut off are counted. Python's tests have the order of spares.
#include <stdexcept>

#include "check.hpp"
#include "pool/slots/slots.hpp"

using namespace remuda;

TEST(neighbours_change_their_state_together_or_not_at_all) {
  for (std::uint32_t count : {1U, 3U, 4U, 9U, 64U}) {
    for (std::uint32_t odd = 0; odd < count; ++odd) {
      Slots slots(count + 2);
      slots.send(1, Op::kStep, 7, count, 20);
      slots.set_sequence(1, 5, count);
      for (std::uint32_t i = 0; i < count; ++i) {
        const Slots::Slot slot = slots[1 + i];
        CHECK(slot.state == SlotState::kInFlight && slot.op == Op::kStep && slot.sequence == 5 && slot.order == 5);
        CHECK(slot.row == 7 + i && slot.action_row == 20 + i);
      }
      CHECK(slots[0].state == SlotState::kIdle && slots[count + 1].state == SlotState::kIdle);
      CHECK(slots.are_in_flight(1, count, 7) && !slots.are_in_flight(1, count, 8));
      CHECK(!slots.are_in_flight(0, count, 6) && !slots.are_in_flight(1, count + 1, 7));
      slots.orphan(1 + odd);
      CHECK(!slots.are_in_flight(1, count, 7));
      CHECK_THROWS(std::logic_error, slots.finish(1, count));
      for (std::uint32_t i = 0; i < count; ++i)
        CHECK_EQ(slots[1 + i].state, i == odd ? SlotState::kOrphaned : SlotState::kInFlight);
      slots.resend(1 + odd);
      slots.set_sequence(1 + odd, 6, 1, false);
      CHECK(slots[1 + odd].sequence == 6 && slots[1 + odd].order == 5);
      slots.finish(1, count);
      slots.take(1, count);
      for (std::uint32_t i = 0; i < count; ++i) CHECK_EQ(slots[1 + i].state, SlotState::kIdle);
    }
  }
}

TEST(episodes_that_were_cut_off_are_counted_until_they_go_on) {
  Slots slots(3);
  CHECK(!slots.any_cut_off());
  slots.end_episode(0);
  CHECK(!slots.any_cut_off() && !slots.is_cut_off(0) && slots[0].episode == Episode::kOver);
  slots.cut_off(1);
  slots.cut_off(1);  // again, because the successor has died, too
  slots.cut_off(2);
  CHECK(slots.is_cut_off(1) && slots[1].episode == Episode::kCutOff);
  slots.go_on(1);
  CHECK(slots.any_cut_off() && !slots.is_cut_off(1));
  slots.go_on(2);
  CHECK(!slots.any_cut_off() && slots[2].episode == Episode::kGoesOn);
}
