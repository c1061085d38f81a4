// Tests of a worker's statistics: the duration of a step does not include the reset within the step.
#include <memory>

#include "check.hpp"
#include "worker/task_meter.hpp"

using namespace remuda;

namespace {

struct Worker {
  Meter shared{};
  std::unique_ptr<WorkerFigures> figures = std::make_unique<WorkerFigures>();
  std::unique_ptr<EnvFigures[]> envs = std::make_unique<EnvFigures[]>(2);
  TaskMeter meter{shared, *figures, envs.get()};

  void finish(Op op, std::uint32_t env, std::uint64_t took, std::uint32_t flags = 0) {
    Result result{};
    result.op = op;
    result.env = env;
    result.count = 1;
    result.flags = flags;
    result.begin_ns = 1000;
    result.end_ns = 1000 + took;
    meter.note_result(result);
  }
};

}  // namespace

TEST(it_names_the_env_that_it_is_at) {
  Worker worker;
  CHECK(worker.shared.pid.load() != 0);
  CHECK(!worker.meter.current_env());
  worker.meter.begin_command(Op::kStep, 1, 5000);
  CHECK(worker.meter.current_env() == 1U && worker.meter.doing() == Op::kStep);
  worker.meter.begin(Op::kReset, 1, 6000);
  CHECK(worker.meter.doing() == Op::kReset);
  CHECK(Task::begin_ns(worker.shared.task.load()) <= 6000 && Task::begin_ns(worker.shared.task.load()) > 5900);
  worker.meter.end();
  CHECK(!worker.meter.current_env() && worker.shared.task.load() == 0);
  worker.meter.begin_command(Op::kClose, kWholeWorker, 7000);
  CHECK(!worker.meter.current_env());
}

TEST(a_step_takes_as_long_as_it_does_without_the_reset_in_it) {
  Worker worker;
  worker.meter.begin_command(Op::kStep, 0, 1000);
  worker.meter.note_step();
  worker.meter.note_reset(0, 300);
  worker.meter.note_renewal(100);
  worker.finish(Op::kStep, 0, 1000);
  CHECK_EQ(worker.envs[0].steps.total_ns.load(), 600U);
  CHECK_EQ(worker.envs[0].resets.total_ns.load(), 300U);
  CHECK(worker.shared.busy_ns.load() == 1000 && worker.shared.steps.load() == 1);
  worker.meter.begin_command(Op::kStep, 0, 2000);  // the reset of the previous command no longer counts
  worker.meter.note_step();
  worker.finish(Op::kStep, 0, 1000);
  CHECK_EQ(worker.envs[0].steps.total_ns.load(), 1600U);
}

TEST(what_is_no_step_is_counted_as_none) {
  Worker worker;
  worker.meter.begin_command(Op::kReset, 1, 1000);
  worker.finish(Op::kReset, 1, 500);
  CHECK(worker.shared.steps.load() == 1 && worker.envs[1].steps.total_ns.load() == 0);
  worker.meter.begin_command(Op::kMessage, 1, 1000);
  worker.finish(Op::kMessage, 1, 500, kIsMessage);
  CHECK(worker.shared.steps.load() == 1 && worker.shared.busy_ns.load() == 1000);
}
