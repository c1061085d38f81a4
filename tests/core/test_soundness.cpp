// Tests that a result is sound only if it answers a command or a message.
#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/workers/soundness.hpp"
#include "random.hpp"

using namespace remuda;

namespace {

// Two workers with three envs each. The first worker's slots are in flight, and their results go to the rows from 6 on.
struct Pool {
  explicit Pool(std::uint32_t width = 1, std::uint32_t spares = 0)
      : memory(2, 3, 2, width), seating(6 - spares, 6), slots(6 - spares), port(*memory.arena, memory.plan, 0, 0, 3) {
    for (std::uint32_t slot = 0; slot < 3; ++slot) slots.send(slot, Op::kStep, 6 + slot);
  }
  bool takes(std::uint32_t env, std::uint32_t row, std::uint32_t count, std::uint32_t flags = 0,
             std::uint64_t sequence = 0) const {
    return is_sound({env, row, count, flags, sequence, 0, 0, Op::kStep, {}}, port, seating, slots);
  }

  PlannedArena memory;
  Seating seating;
  Slots slots;
  Port port;
};

}  // namespace

TEST(answers_to_commands_in_flight_are_sound) {
  Pool pool;
  CHECK(pool.takes(0, 6, 1) && pool.takes(0, 6, 3) && pool.takes(1, 7, 2) && pool.takes(2, 8, 1, kIsFailure));
  CHECK(!pool.takes(0, 7, 1) && !pool.takes(0, 0, 1) && !pool.takes(1, 6, 2));  // other rows than the commands named
  CHECK(pool.takes(0, 6, 1, kHasBlob) && !pool.takes(0, 6, 2, kHasBlob));       // a result with flags is of one env
  pool.slots.send(3, Op::kStep, 9);                                             // to the other worker
  CHECK(!pool.takes(3, 9, 1) && !pool.takes(2, 8, 2) && !pool.takes(6, 12, 1) && !pool.takes(~0U, 6, 1));
  CHECK(!pool.takes(0, 6, ~0U) && !pool.takes(0, 6, 0));
  pool.slots.finish(1);  // a command is answered once
  CHECK(!pool.takes(1, 7, 1) && !pool.takes(0, 6, 3) && pool.takes(0, 6, 1) && pool.takes(2, 8, 1));
  pool.slots.orphan(2);
  CHECK(!pool.takes(2, 8, 1));
}

TEST(messages_are_answered_by_their_numbers) {
  Pool pool;
  pool.port.messages = {5, 9};
  CHECK(pool.takes(kWholeWorker, 0, 1, kIsMessage, 9) && pool.takes(1, 0, 1, kIsMessage | kIsFailure, 5));
  CHECK(!pool.takes(kWholeWorker, 0, 1, kIsMessage, 6));
}

TEST(spares_are_asked_for_where_there_are_some_and_answer_no_commands) {
  CHECK(!Pool().takes(0, 6, 1, kHasFinal | kHasSpares));
  Pool pool(1, 1);
  CHECK(pool.takes(0, 6, 1, kHasFinal | kHasSpares));
  pool.seating.swap_in_spare(0);
  CHECK(!pool.takes(0, 6, 1));  // env 0 is a spare now
  CHECK(!pool.takes(0, 6, 2));
  CHECK(pool.takes(1, 7, 2));
}

TEST(a_vector_env_answers_for_all_of_its_rows_or_for_none) {
  Pool pool(3);
  CHECK(pool.takes(0, 6, 3) && pool.takes(0, 6, 3, kIsFailure | kHasBlob));
  CHECK(!pool.takes(0, 6, 1) && !pool.takes(0, 6, 2) && !pool.takes(1, 7, 2) && !pool.takes(0, 6, 1, kIsFailure));
  pool.port.messages = {5};
  CHECK(pool.takes(0, 0, 1, kIsMessage, 5) && !pool.takes(0, 0, 3, kIsMessage, 5));
}

TEST(noise_is_looked_at_without_harm) {
  Random random(11);
  const auto number = [&] { return static_cast<std::uint32_t>(random.coin() ? random.below(12) : random.bits()); };
  for (std::uint32_t width : {1, 3}) {
    Pool pool(width, width == 1 ? 2 : 0);
    for (int i = 0; i < 200'000; ++i) {
      const std::uint32_t env = number(), row = number(), count = number(), flags = number();
      if (!pool.takes(env, row, count, flags)) continue;
      CHECK(env < 3 && row == 6 + env && count >= 1 && env + count <= 3);
      CHECK(env % width == 0 && count % width == 0 && (flags == 0 || count == width));
    }
  }
}
