// Tests that slots change their state only as the table in slots.hpp permits, that every env either backs one slot or
// is queued once, and that slots take spares in the order of their commands.
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"
#include "random.hpp"

using namespace remuda;

namespace {

struct Event {
  const char* name;
  void (*happen)(Slots& slots);
  SlotState to;
};

const Event kEvents[] = {
    {"send", [](Slots& slots) { slots.send(0, Op::kStep, 7); }, SlotState::kInFlight},
    {"finish", [](Slots& slots) { slots.finish(0); }, SlotState::kReady},
    {"await_spare", [](Slots& slots) { slots.await_spare(0); }, SlotState::kAwaitingSpare},
    {"orphan", [](Slots& slots) { slots.orphan(0); }, SlotState::kOrphaned},
    {"drop", [](Slots& slots) { slots.drop(0); }, SlotState::kIdle},
    {"fail", [](Slots& slots) { slots.fail(0); }, SlotState::kFailed},
    {"release", [](Slots& slots) { slots.release(0); }, SlotState::kIdle},
    {"resend", [](Slots& slots) { slots.resend(0); }, SlotState::kInFlight},
    {"answer", [](Slots& slots) { slots.answer(0); }, SlotState::kReady},
    {"take", [](Slots& slots) { slots.take(0); }, SlotState::kIdle},
};

Slots one_in(SlotState state) {
  Slots slots(1);
  if (state == SlotState::kIdle) return slots;
  slots.send(0, Op::kStep, 7);
  if (state == SlotState::kReady) slots.finish(0);
  if (state == SlotState::kAwaitingSpare) slots.await_spare(0);
  if (state == SlotState::kOrphaned || state == SlotState::kFailed) slots.orphan(0);
  if (state == SlotState::kFailed) slots.fail(0);
  CHECK_EQ(slots[0].state, state);
  return slots;
}

// Returns the names of the events that are permitted in a state.
std::vector<std::string> possible_in(SlotState state) {
  std::vector<std::string> possible;
  for (const Event& event : kEvents) {
    Slots slots = one_in(state);
    try {
      event.happen(slots);
    } catch (const std::logic_error&) {
      CHECK_EQ(slots[0].state, state);
      continue;
    }
    CHECK_EQ(slots[0].state, event.to);
    possible.push_back(event.name);
  }
  return possible;
}

}  // namespace

TEST(each_state_has_the_events_of_the_table) {
  using Names = std::vector<std::string>;
  CHECK(possible_in(SlotState::kIdle) == Names{"send"});
  CHECK(possible_in(SlotState::kInFlight) == (Names{"finish", "await_spare", "orphan"}));
  CHECK(possible_in(SlotState::kAwaitingSpare) == Names{"orphan"});
  CHECK(possible_in(SlotState::kOrphaned) == (Names{"await_spare", "drop", "fail", "resend", "answer"}));
  CHECK(possible_in(SlotState::kReady) == Names{"take"});
  CHECK(possible_in(SlotState::kFailed) == Names{"release"});
}

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

TEST(the_first_open_step_is_the_first_sent_that_may_end_an_episode) {
  Slots slots(4);
  CHECK_EQ(slots.first_open_step(), ~std::uint64_t{0});
  const Op ops[] = {Op::kStep, Op::kReset, Op::kStep, Op::kStep};
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    slots.send(slot, ops[slot], slot);
    slots.set_sequence(slot, 10 - slot);
  }
  CHECK_EQ(slots.first_open_step(), 7u);
  slots.await_spare(3);
  CHECK_EQ(slots.first_open_step(), 8u);
  slots.finish(2);
  slots.orphan(0);
  CHECK_EQ(slots.first_open_step(), 10u);  // the pool may answer the orphaned step with an end
  slots.answer(0);
  CHECK_EQ(slots.first_open_step(), ~std::uint64_t{0});  // a reset ends no episode
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

TEST(a_slot_takes_the_spare_that_has_waited_longest) {
  Seating seating(2, 4);
  CHECK_EQ(seating.slot_of(2), Seating::kNoSlot);
  CHECK_EQ(seating.swap_in_spare(1), 1u);
  CHECK_EQ(seating.env_of(1), 2u);
  CHECK_EQ(seating.slot_of(2), 1u);
  CHECK_EQ(seating.slot_of(1), Seating::kNoSlot);
  CHECK_EQ(seating.swap_in_spare(0), 0u);
  CHECK_EQ(seating.env_of(0), 3u);
  CHECK_EQ(seating.swap_in_spare(0), 3u);
  CHECK_EQ(seating.env_of(0), 1u);  // env 1 left its slot first
}

TEST(envs_are_never_lost_nor_doubled) {
  Random random(3);
  CHECK(!Seating(3, 3).has_spares());
  for (std::uint32_t spares : {1, 2, 7}) {
    Seating seating(5, 5 + spares);
    for (int turn = 0; turn < 1000; ++turn) {
      seating.swap_in_spare(static_cast<std::uint32_t>(random.below(5)));
      std::set<std::uint32_t> seated;
      for (std::uint32_t slot = 0; slot < 5; ++slot) {
        CHECK(seated.insert(seating.env_of(slot)).second);
        CHECK_EQ(seating.slot_of(seating.env_of(slot)), slot);
      }
      std::uint32_t waiting = 0;
      for (std::uint32_t env = 0; env < 5 + spares; ++env) waiting += seating.slot_of(env) == Seating::kNoSlot;
      CHECK_EQ(waiting, spares);
    }
    seating.seat_in_order();
    for (std::uint32_t slot = 0; slot < 5; ++slot) CHECK_EQ(seating.env_of(slot), slot);
    seating.swap_in_spare(4);
    CHECK_EQ(seating.env_of(4), 5u);
  }
}

TEST(slots_are_served_in_the_order_of_sending_once_no_earlier_step_is_open) {
  Seating seating(4, 5);
  CHECK(!seating.anyone_asks());
  seating.ask_for_spare(2, 30);
  seating.ask_for_spare(0, 10);
  CHECK(seating.take_due(5).empty());
  CHECK(seating.take_due(20) == (std::vector<std::uint32_t>{0}));
  CHECK(seating.anyone_asks());
  seating.ask_for_spare(1, 20);
  CHECK(seating.take_due(~std::uint64_t{0}) == (std::vector<std::uint32_t>{1, 2}));
  CHECK(!seating.anyone_asks());
}
