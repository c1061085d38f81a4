// Vector envs in the worker: several commands, one step.
//
// Each of these, a sub-env, has a slot, a row and commands like any env.  The commands of the sub-envs of one vector
// env come one after another and are alike; with the last of them the vector env does what they say.  Its hook writes
// the rows, and writes nothing when it raises; what is counted for each env is counted here.
#include "ipc/blob_parts.hpp"
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

void WorkerLoop::gather(const Command& command) {
  const std::uint32_t sub_env = command.env % spec_.width;
  if (sub_env == 0) gathered_ = {command};
  if (nb::object parts = read_blob(command); parts.is_valid()) {
    if (!gathered_.blobs.is_valid()) gathered_.blobs = nb::list(nb::make_tuple(nb::none())) * nb::int_(spec_.width);
    gathered_.blobs[sub_env] = parts;
  }
  if (sub_env + 1 == spec_.width) execute_vector(gathered_.first, std::move(gathered_.blobs));
}

void WorkerLoop::execute_vector(const Command& first, nb::object blobs) {
  const Result whole = begin_result(first, spec_.width);
  nb::object extras;
  try {
    extras = run_vector(first, blobs.is_valid() ? std::move(blobs) : nb::object(nb::none()));
  } catch (nb::python_error& error) {
    return fail_vector(error, whole);
  } catch (nb::builtin_exception& error) {
    nb::python_error python_error = as_python(error);
    return fail_vector(python_error, whole);
  }
  if (first.op != Op::kObserve) note_results(first);
  post_vector(whole, extras);
}

// What the hook returned.
nb::object WorkerLoop::run_vector(const Command& first, nb::object blobs) {
  Env* sub_envs = &env_of(first);
  if (first.op == Op::kObserve) return hooks_.attr("observe_vector")(first.env, first.row);
  // One that was built anew knows of no episode that it could reset by itself.
  const bool is_first = !sub_envs->has_begun && spec_.autoreset == Autoreset::kNextStep;
  if (first.op == Op::kStep && !is_first) {
    count_steps(sub_envs);
    return hooks_.attr("step_vector")(first.env, first.row, first.action, blobs);
  }
  begin(Op::kReset, first.env, now_);
  for (std::uint32_t i = 0; i < spec_.width; ++i) begin_episode(sub_envs[i]);
  nb::object extras =
      first.op == Op::kResetIntoRow
          ? hooks_.attr("reset_vector_into_rows")(first.env, first.row)
          : hooks_.attr("reset_vector")(first.env, first.row, first.op == Op::kStep ? nb::none() : blobs);
  sub_envs->has_begun = true;
  return extras;
}

// Before they are made: it may be the last. A sub-env whose episode is over resets instead.
void WorkerLoop::count_steps(Env* sub_envs) {
  for (std::uint32_t i = 0; i < spec_.width; ++i) {
    if (sub_envs[i].needs_reset && spec_.autoreset == Autoreset::kNextStep)
      begin_episode(sub_envs[i]);
    else
      add(progress_[index_of(sub_envs[i])].steps, 1);
  }
}

void WorkerLoop::begin_episode(Env& env) {
  Progress& progress = progress_[index_of(env)];
  add(progress.resets, 1);
  progress.steps.store(0, std::memory_order_relaxed);
}

// Which episodes are over, by what the hook has written.
void WorkerLoop::note_results(const Command& first) {
  Env* sub_envs = &env_of(first);
  for (std::uint32_t i = 0; i < spec_.width; ++i) {
    const std::uint32_t row = first.row + i;
    const bool is_step = first.op == Op::kStep, done = is_step && (terminated_[row] || truncated_[row]);
    if (done && spec_.autoreset == Autoreset::kSameStep) begin_episode(sub_envs[i]);
    sub_envs[i].needs_reset = done && spec_.autoreset != Autoreset::kSameStep;
    keep_last(sub_envs[i], row);
  }
}

// As runs, but for the sub-envs of which there is more to say.
void WorkerLoop::post_vector(Result whole, nb::handle extras) {
  if (extras.is_none()) return post(whole, nb::object());
  for (std::uint32_t i = 0; i < spec_.width; ++i) {
    Result one = whole;
    one.env += i;
    one.row += i;
    one.count = 1;
    if (i != 0) one.begin_ns = now_;  // the time is the whole env's
    nb::object extra = extras[i], parts;
    if (!extra.is_none()) {
      one.flags = nb::cast<std::uint32_t>(extra[0]);
      if (!extra[1].is_none()) parts = extra[1];
    }
    post(one, parts);
  }
}

void WorkerLoop::fail_vector(nb::python_error& error, Result whole) {
  nb::list extras;
  for (std::uint32_t i = 0; i < spec_.width; ++i)
    extras.append(nb::make_tuple(kIsFailure, describe(error, nb::int_(whole.env + i))));
  post_vector(whole, extras);
}

}  // namespace remuda
