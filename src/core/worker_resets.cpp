// The worker's loop: how episodes begin. When asked, in advance, and with an env that was built anew.
#include <algorithm>

#include "blob_parts.hpp"
#include "env_results.hpp"
#include "worker_loop.hpp"

namespace remuda {

void WorkerLoop::reset(Env& env, const Command& command, Result& result) {
  nb::tuple outcome = outcome_of_reset(env, read_reset_arguments(command));
  env.needs_reset = false;
  Objects objects;
  write_obs(obs_, item(outcome, 0), result.row, objects);
  env.last_obs = nb::borrow(item(outcome, 0));
  write_flags(result.row, 0.0, false, false);
  keep_last(env, result.row);
  attach_info(objects, item(outcome, 1), nb::object(), result);
}

// A plain reset may have been made already.
nb::tuple WorkerLoop::outcome_of_reset(Env& env, nb::handle kwargs) {
  env.is_due = false;
  nb::object ahead = std::move(env.ahead);
  auto ahead_error = std::move(env.ahead_error);
  env.ahead.reset();
  env.ahead_error.reset();
  if (kwargs.is_valid()) return call_reset(env, kwargs);
  if (ahead_error) {
    begin(Op::kReset, index_of(env), now_ns());
    throw nb::python_error(*ahead_error);
  }
  return ahead.is_valid() ? nb::borrow<nb::tuple>(ahead) : call_reset(env, kwargs);
}

// Resets an env whose episode has ended; false when there is none. One at a time: what has come in the meantime is
// first.
bool WorkerLoop::reset_one_ahead() {
  if (!spec_.resets_ahead) return false;
  auto due = std::find_if(envs_.begin(), envs_.end(), [](const Env& env) { return env.is_due; });
  if (due == envs_.end()) return false;
  reset_ahead(*due, nb::handle());
  return true;
}

void WorkerLoop::reset_ahead(Env& env, nb::handle kwargs) {
  const std::uint64_t before = now_ns();
  env.is_due = false;
  env.ahead.reset();
  env.ahead_error.reset();
  try {
    env.ahead = call_reset(env, kwargs);
  } catch (nb::python_error& error) {
    env.ahead_error.emplace(error);
  } catch (nb::builtin_exception& error) {
    env.ahead_error.emplace(as_python(error));
  }
  now_ = now_ns();
  add(meter_->busy_ns, now_ - before);
}

// In advance; `reset_ahead` may have been there before.
void WorkerLoop::prepare(Env& env, const Command& command, Result& result) {
  nb::object kwargs = read_reset_arguments(command);
  if (kwargs.is_valid() || !(env.ahead.is_valid() || env.ahead_error)) reset_ahead(env, kwargs);
  result.flags |= kIsMessage;
  post(result, nb::object());
}

nb::tuple WorkerLoop::call_reset(Env& env, nb::handle kwargs) {
  const std::uint32_t index = index_of(env);
  if ((env.is_missing && !spec_.has_successors) || (spec_.renews_in_place && renewal_due(env))) renew(env);
  begin(Op::kReset, index, now_ns());
  add(progress_[index].resets, 1);
  progress_[index].steps.store(0, std::memory_order_relaxed);
  ++env.episodes;
  if (log_.is_on()) {
    nb::object beginning = hooks_.attr("beginning")(index, kwargs.is_valid() ? kwargs : nb::handle(nb::none()));
    log_.begin(index, nb::cast<Entry>(beginning[0]), PartBytes(nb::make_tuple(beginning[1])).bytes()[0]);
  }
  nb::object outcome;
  if (kwargs.is_valid())
    outcome = env.env.attr("reset")(**nb::borrow<nb::dict>(kwargs));
  else
    outcome = env.env.attr("reset")();
  if (!PyTuple_Check(outcome.ptr()) || PyTuple_GET_SIZE(outcome.ptr()) != 2)
    reject("reset() to return (observation, info)", outcome);
  check_info(item(nb::borrow<nb::tuple>(outcome), 1));
  return nb::borrow<nb::tuple>(outcome);
}

// Where this fails, it is tried again before the next reset, unless that is a successor's.
void WorkerLoop::renew(Env& env) {
  const std::uint32_t index = index_of(env);
  begin(Op::kRebuild, index, now_ns());
  env.is_missing = true;
  hooks_.attr("renew")(index);
  env.is_missing = false;
}

bool WorkerLoop::renewal_due(const Env& env) const {
  return spec_.renew_every != 0 && env.episodes >= spec_.renew_every;
}

void WorkerLoop::revive(Env& env, Result& result) {
  nb::tuple outcome = outcome_of_reset(env, nb::object());
  env.needs_reset = false;
  Objects objects;
  write_obs(obs_, item(outcome, 0), result.row, objects);
  env.last_obs = nb::borrow(item(outcome, 0));
  keep_last(env, result.row);
  result.flags |= kHasFinal;
  attach_info(objects, item(outcome, 1), nb::object(), result);
}

void WorkerLoop::rebuild(Env& env, Result& result) {
  result.flags |= kIsMessage;
  renew(env);
  post(result, nb::object());
}

nb::object WorkerLoop::read_reset_arguments(const Command& command) {
  nb::object parts = read_blob(command);
  return parts.is_valid() ? hooks_.attr("reset_arguments")(parts) : nb::object();
}

}  // namespace remuda
