// Tests of slots with a failed env: their states, their rows, and the number of pending slots of their part.
#include <numeric>

#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/slots/resolution.hpp"

using namespace remuda;

namespace {

using Next = Resolution::Next;

constexpr std::size_t kLeaf = 5, kFinalLeaf = 6;

// One worker with four envs, the last of which may be spares. An observation has one leaf. All slots are in one part.
struct Pool {
  explicit Pool(std::uint32_t spares = 0, std::uint32_t width = 1)
      : seating(4 - spares, 4),
        slots(4 - spares),
        memory(1, 4, 2, 2, true, width),
        last_results(memory.plan, rows({kReward, kTerminated, kTruncated, kInfoMask, kLeaf}), rows({kFinalLeaf})),
        lendings(Lendings::make(memory.arena, slots.count())),
        parts(slots, 2),
        resolution(slots, seating, last_results, parts, width) {
    std::vector<std::uint32_t> all(slots.count());
    std::iota(all.begin(), all.end(), 0);
    parts.divide({std::move(all)}, *lendings);
  }

  std::vector<LastResults::Rows> rows(std::initializer_list<std::size_t> columns) {
    std::vector<LastResults::Rows> rows;
    for (std::size_t c : columns)
      rows.push_back(
          {memory.arena->at<std::byte>(memory.plan.columns[c]), c == kTerminated || c == kTruncated ? 1U : 8U});
    return rows;
  }
  template <class T>
  T at(std::size_t column, std::uint32_t row) {
    return *reinterpret_cast<T*>(rows({column})[0].row(row));
  }
  // Writes the env's last observation to its kept row, as the worker does.
  void observe(std::uint32_t env, std::uint64_t leaf) {
    const std::uint32_t row = memory.plan.kept_row(env, last_results.results(env) + 1);
    *reinterpret_cast<std::uint64_t*>(rows({kLeaf})[0].row(row)) = leaf;
    last_results.count(env);
  }
  // Puts the slot in flight with this command. The result goes to the slot's row of the scratch frame.
  void send(std::uint32_t slot, Op op, std::uint64_t sequence = 1) {
    parts.at(0).send(1);
    slots.send(slot, op, slot);
    slots.set_sequence(slot, sequence);
  }
  void orphan(std::uint32_t slot, Op op = Op::kStep, std::uint64_t sequence = 1) {
    send(slot, op, sequence);
    slots.orphan(slot);
  }
  SlotState state(std::uint32_t slot) const { return slots[slot].state; }
  bool ended(std::uint32_t row) { return at<bool>(kTruncated, row); }

  Seating seating;
  Slots slots;
  PlannedArena memory;
  LastResults last_results;
  std::shared_ptr<Lendings> lendings;
  Parts parts;
  Resolution resolution;
};

}  // namespace

TEST(a_command_that_is_dropped_leaves_nothing) {
  Pool pool;
  pool.orphan(1);
  CHECK_EQ(pool.parts.at(0).pending(), 1u);
  pool.resolution.drop(1);
  CHECK(pool.state(1) == SlotState::kIdle && pool.parts.at(0).pending() == 0);
}

TEST(a_failure_is_pending_and_done_until_its_part_is_told) {
  Pool pool(0, 2);
  Part& part = pool.parts.at(0);
  for (std::uint32_t slot : {2, 3}) pool.orphan(slot);
  pool.resolution.fail(2);
  CHECK(pool.state(2) == SlotState::kFailed && pool.state(3) == SlotState::kFailed);
  CHECK(part.pending() == 2 && part.done() == 2 && part.in_flight() == 0 && part.ready() == 0);
  part.release_failed(pool.slots);
  CHECK(pool.state(2) == SlotState::kIdle && pool.state(3) == SlotState::kIdle);
  CHECK(part.pending() == 0 && part.done() == 0);
}

TEST(a_command_that_is_sent_once_more_is_the_same_one) {
  Pool pool;
  pool.orphan(1, Op::kReset, 7);
  pool.resolution.resend(1);
  CHECK(pool.state(1) == SlotState::kInFlight && pool.slots[1].op == Op::kReset);
  CHECK(pool.parts.at(0).in_flight() == 1 && pool.parts.at(0).ready() == 0);
}

TEST(results_that_the_pool_makes_are_ready_and_of_the_last_observation) {
  for (bool ends : {false, true}) {
    Pool pool;
    pool.observe(2, 30);
    pool.orphan(2);
    if (ends)
      pool.resolution.end_episode(2);
    else
      pool.resolution.repeat_last(2);
    CHECK(pool.state(2) == SlotState::kReady && pool.parts.at(0).ready() == 1 && pool.parts.at(0).in_flight() == 0);
    CHECK(pool.at<std::uint64_t>(kLeaf, 2) == 30 && pool.ended(2) == ends);
    const Run run = pool.parts.at(0).take(1)[0];
    CHECK(run.slot == 2 && run.row == 2 && run.count == 1 && run.flags == kHasBlob);
  }
}

TEST(a_reset_into_the_row_is_sent_and_the_end_is_written_unless_it_is_there) {
  for (bool is_complete : {false, true}) {
    Pool pool;
    pool.observe(0, 40);
    pool.orphan(0);
    CHECK(pool.resolution.reset_into_row(0, is_complete) == Next::kSend);
    CHECK(pool.state(0) == SlotState::kInFlight && pool.slots[0].op == Op::kResetIntoRow);
    CHECK(pool.ended(0) == !is_complete);
    CHECK_EQ(pool.at<std::uint64_t>(kFinalLeaf, 0), is_complete ? 0u : 40u);
  }
}

TEST(where_there_are_spares_nobody_waits_for_the_env_that_is_built_anew) {
  Pool pool(1);
  pool.observe(0, 40);
  pool.orphan(0, Op::kStep, 5);
  CHECK(pool.resolution.reset_into_row(0, false) == Next::kAwaitSpare);
  CHECK(pool.state(0) == SlotState::kAwaitingSpare && pool.ended(0));
  CHECK(pool.seating.take_due(4).empty());  // an earlier step may still take the spare
  CHECK(pool.seating.take_due(5) == std::vector<std::uint32_t>{0});
  pool.slots.orphan(0);  // as `SlotLedger::complete_with_spare` does
  CHECK(pool.resolution.reset_into_row(0, true) == Next::kSend);
}

TEST(an_end_that_is_deferred_is_the_answer_to_the_next_step_or_observe) {
  for (Op op : {Op::kStep, Op::kObserve}) {
    Pool pool;
    pool.observe(3, 50);
    CHECK(pool.resolution.defer_end(3, false) && pool.slots.is_cut_off(3));
    pool.send(3, op, 8);
    CHECK(pool.resolution.deliver_end(3, 9) == Next::kAnswered);
    CHECK(pool.state(3) == SlotState::kReady && pool.ended(3) && pool.slots[3].sequence == 9);
    CHECK(!pool.slots.is_cut_off(3));
  }
}

TEST(a_deferred_end_may_be_the_reset_of_the_fresh_env) {
  Pool pool;
  pool.observe(3, 50);
  CHECK(pool.resolution.defer_end(3, true));
  pool.send(3, Op::kStep);
  CHECK(pool.resolution.deliver_end(3, 9) == Next::kSend);
  CHECK(pool.state(3) == SlotState::kInFlight && pool.slots[3].op == Op::kResetIntoRow && pool.ended(3));
}

TEST(a_reset_needs_not_be_told_of_an_end) {
  for (bool into_reset : {false, true}) {
    Pool pool;
    pool.resolution.defer_end(3, into_reset);
    pool.send(3, Op::kReset, 4);
    CHECK(!pool.resolution.deliver_end(3, 5));
    CHECK(pool.state(3) == SlotState::kInFlight && !pool.slots.is_cut_off(3) && pool.slots[3].sequence == 4);
  }
}

TEST(an_end_is_not_deferred_for_a_slot_whose_episode_has_ended) {
  Pool pool(1);
  pool.send(0, Op::kStep);
  pool.resolution.await_spare(0);
  CHECK(!pool.resolution.defer_end(0, true) && !pool.slots.any_cut_off());
}

TEST(an_observe_is_answered_by_what_the_pool_knows) {
  Pool pool;
  pool.observe(1, 60);
  pool.send(1, Op::kObserve);
  pool.resolution.answer_observe(1);
  CHECK(pool.state(1) == SlotState::kReady && pool.at<std::uint64_t>(kLeaf, 1) == 60 && !pool.ended(1));
}

TEST(only_orphans_are_dealt_with) {
  Pool pool;
  pool.send(0, Op::kStep);
  CHECK_THROWS(std::logic_error, pool.resolution.drop(0));
  CHECK_THROWS(std::logic_error, pool.resolution.resend(0));
  CHECK_THROWS(std::logic_error, pool.resolution.resend(1));
  CHECK_EQ(pool.parts.at(0).pending(), 1u);
}

TEST(what_becomes_of_a_vector_env_becomes_of_all_of_its_slots) {
  Pool pool(0, 2);
  for (std::uint32_t slot : {2, 3}) {
    pool.observe(slot, 70 + slot);
    pool.orphan(slot);
  }
  pool.resolution.resend(2);
  CHECK(pool.state(2) == SlotState::kInFlight && pool.state(3) == SlotState::kInFlight);
  for (std::uint32_t slot : {2, 3}) pool.slots.orphan(slot);
  pool.resolution.end_episode(2);
  CHECK(pool.parts.at(0).ready() == 2 && pool.parts.at(0).in_flight() == 0);
  const std::vector<Run> runs = pool.parts.at(0).take(2);
  CHECK(runs.size() == 1 && runs[0].slot == 2 && runs[0].row == 2 && runs[0].count == 2);
  for (std::uint32_t slot : {2, 3}) {
    CHECK(pool.state(slot) == SlotState::kReady && pool.ended(slot));
    CHECK_EQ(pool.at<std::uint64_t>(kLeaf, slot), 70u + slot);
    pool.slots.take(slot);
  }

  pool.resolution.defer_end(2, true);
  CHECK(pool.slots.is_cut_off(2) && pool.slots.is_cut_off(3) && !pool.slots.is_cut_off(1));
  for (std::uint32_t slot : {2, 3}) pool.send(slot, Op::kStep);
  CHECK(pool.resolution.deliver_end(2, 9) == Next::kSend);
  for (std::uint32_t slot : {2, 3})
    CHECK(pool.slots[slot].op == Op::kResetIntoRow && pool.slots[slot].sequence == 9 && !pool.slots.is_cut_off(slot));
  for (std::uint32_t slot : {2, 3}) pool.slots.orphan(slot);
  pool.resolution.drop(2);
  CHECK(pool.state(2) == SlotState::kIdle && pool.state(3) == SlotState::kIdle && pool.parts.at(0).pending() == 0);
}
