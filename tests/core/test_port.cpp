// Tests that `reopen` resets a port for a successor, and that a worker cannot pretend to be at a task.
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/workers/port.hpp"

using namespace remuda;

namespace {

constexpr WorkerState kStates[] = {WorkerState::kStarting, WorkerState::kRunning, WorkerState::kLate,
                                   WorkerState::kClosing,  WorkerState::kKilled,  WorkerState::kCorrupt,
                                   WorkerState::kDead};

// Makes a new port take this path, and returns the initials of the states that may follow. L: late, l: closing.
std::string next_of(const std::vector<WorkerState>& path) {
  const PlannedArena memory(1, 1);
  std::string next;
  for (const WorkerState state : kStates) {
    Port port(*memory.arena, memory.plan, 0, 0, 1);
    for (const WorkerState step : path) port.become(step);
    const WorkerState before = port.state();
    try {
      port.become(state);
      CHECK_EQ(port.state(), state);
      next += "SRLlKCD"[static_cast<int>(state)];
    } catch (const std::logic_error&) {
      CHECK_EQ(port.state(), before);
    }
  }
  return next;
}

}  // namespace

TEST(each_state_is_followed_by_those_of_the_table) {
  CHECK_EQ(next_of({}), "LlKCD");  // running
  CHECK_EQ(next_of({WorkerState::kLate}), "RKCD");
  CHECK_EQ(next_of({WorkerState::kClosing}), "KCD");
  CHECK_EQ(next_of({WorkerState::kKilled}), "CD");
  CHECK_EQ(next_of({WorkerState::kCorrupt}), "D");
  CHECK_EQ(next_of({WorkerState::kDead}), "S");
  CHECK_EQ(next_of({WorkerState::kDead, WorkerState::kStarting}), "RD");
}

TEST(a_successor_finds_nothing_of_its_predecessor) {
  const PlannedArena memory(2, 3);
  Port port(*memory.arena, memory.plan, 1, 3, 3);
  const auto worker_end = [&memory]() -> RingConsumer<Command> {
    return {memory.arena->at<RingHeader>(memory.plan.commands(1)), memory.plan.ring_capacity};
  };
  for (int i = 0; i < 5; ++i) port.commands.push({Op::kStep, 3, 0, 1, 1, 0, 0});
  port.commands.publish();
  port.has_unpublished = true;
  port.outstanding = 5;
  port.messages = {1, 2};
  port.last_end_ns = 77;
  port.bell->sleeping = 1;
  port.meter->task = Task::pack(Op::kStep, 1024);
  CHECK(!worker_end().empty());

  const std::uint64_t before = now_ns();
  port.become(WorkerState::kDead);
  port.reopen(*memory.arena, memory.plan, 1);
  CHECK_EQ(port.state(), WorkerState::kStarting);
  auto successor = worker_end();
  CHECK(successor.empty() && !port.has_unpublished && port.outstanding == 0 && port.messages.empty());
  CHECK(port.bell->sleeping == 0 && port.task() == 0 && port.last_end_ns >= before);
  CHECK(port.hosts(3) && port.hosts(5) && !port.hosts(2) && !port.hosts(6));

  // A command that is sent now waits for the successor.
  port.commands.push({Op::kReset, 4, 0, 1, 9, 0, 0});
  CHECK(successor.empty());
  port.commands.publish();
  Command command;
  CHECK(successor.pop(command));
  CHECK_EQ(command.sequence, 9u);
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
