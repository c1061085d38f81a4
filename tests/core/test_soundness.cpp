// Tests that a result is sound only if it answers a command or a message, and that a worker cannot pretend to be at a
// task.
#include <memory>

#include "check.hpp"
#include "pool/workers/soundness.hpp"
#include "random.hpp"

using namespace remuda;

namespace {

// An arena and its plan. A row of each column has 8 bytes.
struct PlannedArena {
  PlannedArena(std::uint32_t workers, std::uint32_t envs_each, std::uint32_t frames = 2, std::uint32_t width = 1) {
    plan.workers = workers;
    plan.slots = plan.envs = workers * envs_each;
    plan.frames = frames;
    plan.ring_capacity = 8;
    plan.blob_bytes = 1024;
    plan.action_bytes = {8};
    plan.column_bytes.assign(remuda::kFirstLeaf, 8);
    plan.width = width;
    plan.lay_out();
    arena = remuda::Arena::create(plan.bytes);
  }

  remuda::Plan plan{};
  std::shared_ptr<remuda::Arena> arena;
};

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

TEST(noise_is_looked_at_without_harm) {
  Random random(11);
  const auto number = [&] { return static_cast<std::uint32_t>(random.coin() ? random.below(12) : random.bits()); };
  for (std::uint32_t width : {1, 3}) {
    Pool pool(width, width == 1 ? 2 : 0);
    if (width == 1) pool.seating.swap_in_spare(0);  // env 0 is a spare now
    for (int i = 0; i < 200'000; ++i) {
      const std::uint32_t env = number(), row = number(), count = number(), flags = number();
      if (!pool.takes(env, row, count, flags)) continue;
      CHECK(env < 3 && row == 6 + env && count >= 1 && env + count <= 3);
      CHECK(env % width == 0 && count % width == 0 && (flags == 0 || count == width));
      CHECK(width == 1 ? env != 0 : (flags & kHasSpares) == 0);
    }
  }
}

TEST(a_successor_finds_nothing_of_its_predecessor) {
  Pool pool;
  Port& port = pool.port;
  port.has_unpublished = true;
  port.outstanding = 5;
  port.messages = {1, 2};
  port.bell->sleeping = 1;
  port.meter->task = Task::pack(Op::kStep, 1024);
  port.become(WorkerState::kDead);
  port.reopen(*pool.memory.arena, pool.memory.plan, 0);
  CHECK(!port.has_unpublished && port.outstanding == 0 && port.messages.empty());
  CHECK(port.bell->sleeping == 0 && port.task() == 0);
}

TEST(a_worker_is_at_its_task_until_a_result_tells_that_it_is_over) {
  const PlannedArena memory(1, 1);
  Port port(*memory.arena, memory.plan, 0, 0, 1);
  const auto is_at = [&port](std::uint64_t task) {
    port.meter->task = task;
    return port.is_at(port.task());
  };
  CHECK(!is_at(0));
  const std::uint64_t begin = now_ns(), task = Task::pack(Op::kReset, begin);
  CHECK(is_at(task));
  port.last_end_ns = begin - 1000;
  CHECK(is_at(task));
  port.last_end_ns = begin + 1000;
  CHECK(!is_at(task));
  // Words that an env has overwritten: one that is no op, and times before the worker's life or in the future.
  port.last_end_ns = 0;
  CHECK(!is_at(15));
  port.last_end_ns = begin;
  for (std::uint64_t time : {std::uint64_t{16000}, now_ns() + 1'000'000'000'000, std::uint64_t{0xA5A5A5A5A5A5A5A0}})
    CHECK(!is_at(Task::pack(Op::kStep, time)));
}
