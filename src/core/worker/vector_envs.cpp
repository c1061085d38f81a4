// Vector envs in the worker: one command makes one step of a vector env and has one result, which covers many rows.
//
// A vector env's hook writes the rows of its sub-envs, and writes nothing when it raises. The counts of each sub-env
// are kept here.
#include "worker/loop.hpp"

namespace remuda {

void WorkerLoop::execute_vector(const Command& command, Result& result) {
  const nb::object extra = run_vector(command);
  if (command.op != Op::kObserve) note_results(command);
  if (extra.is_none()) return post(result, nb::object());
  result.flags = nb::cast<std::uint32_t>(extra[0]);
  post(result, extra[1]);
}

// Calls the hook of the command and returns its result.
nb::object WorkerLoop::run_vector(const Command& command) {
  HostedEnv* sub_envs = &env_of(command);
  nb::object parts = read_blob(command);
  if (!parts.is_valid()) parts = nb::none();
  if (command.op == Op::kObserve) return hooks_.attr("observe_vector")(command.env, command.row);
  // With next-step autoreset, a vector env resets finished sub-envs within its step. A rebuilt one has no episodes yet,
  // so its first step is replaced by a reset.
  const bool is_first = !sub_envs->has_begun && spec_.autoreset == Autoreset::kNextStep;
  if (command.op == Op::kStep && !is_first) {
    count_steps(sub_envs);
    has_stepped_ = true;
    return hooks_.attr("step_vector")(command.env, command.row, command.action, parts);
  }
  if (sub_envs->is_unbuilt) {
    renew(*sub_envs);
    now_ = now_ns();
  }
  meter_.begin(Op::kReset, command.env, now_);
  for (std::uint32_t i = 0; i < plan_.width; ++i) begin_episode(sub_envs[i]);
  nb::object extra =
      command.op == Op::kResetIntoRow
          ? hooks_.attr("reset_vector_into_rows")(command.env, command.row)
          : hooks_.attr("reset_vector")(command.env, command.row, command.op == Op::kStep ? nb::none() : parts);
  sub_envs->has_begun = true;
  const std::uint64_t took = now_ns() - now_;
  sub_envs->figures.resets.note(took);
  resetting_ += took;
  return extra;
}

// Counts the steps of the sub-envs before they are made, because the env may not survive them. A sub-env that finished
// its episode resets in this step instead.
void WorkerLoop::count_steps(HostedEnv* sub_envs) {
  for (std::uint32_t i = 0; i < plan_.width; ++i) {
    if (sub_envs[i].needs_reset() && spec_.autoreset == Autoreset::kNextStep)
      begin_episode(sub_envs[i]);
    else
      add(sub_envs[i].progress.steps, 1);
  }
}

void WorkerLoop::begin_episode(HostedEnv& env) {
  env.progress.begin_episode();
  env.reward = 0.0;
}

// Records the results of a command in the counts: the rewards and the ends of episodes, from the rows that the hook has
// written.
void WorkerLoop::note_results(const Command& command) {
  HostedEnv* sub_envs = &env_of(command);
  for (std::uint32_t i = 0; i < plan_.width; ++i) {
    const std::uint32_t row = command.row + i;
    const bool is_step = command.op == Op::kStep, done = is_step && rows_.ends_episode(row);
    if (is_step) count_reward(sub_envs[i], rows_.reward(row), done);
    if (done && spec_.autoreset == Autoreset::kSameStep) begin_episode(sub_envs[i]);
    sub_envs[i].set_needs_reset(done && spec_.autoreset != Autoreset::kSameStep);
    keep_last(sub_envs[i], row);
  }
}

}  // namespace remuda
