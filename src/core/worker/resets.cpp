// The worker's resets: on request, in advance, and after an env was rebuilt.
#include <algorithm>

#include "ipc/blob_parts.hpp"
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

namespace {

// Returns the outcome with additions to a copy of the info. The env may continue to use the original dict.
nb::tuple with_additions(const nb::tuple& outcome, nb::handle additions) {
  nb::object info = nb::steal(PyDict_Copy(item(outcome, 1).ptr()));
  if (!info.is_valid() || PyDict_Update(info.ptr(), additions.ptr()) < 0) nb::raise_python_error();
  return nb::make_tuple(item(outcome, 0), info);
}

}  // namespace

void WorkerLoop::reset(HostedEnv& env, const Command& command, Result& result) {
  nb::object arguments = read_reset_arguments(command);
  // Renewal is due here only if the caller resets in mid-episode. At the end of an episode, the step's result has
  // already reported that renewal is due.
  if (const auto due = successor_due(env)) return post_undone(due, result);
  if (arguments.is_valid() && !PyDict_Check(arguments.ptr())) return restore(env, arguments, result);
  nb::tuple outcome = outcome_of_reset(env, std::move(arguments), result);
  rows_.clear_reward(result.row);
  rows_.write_flags(result.row, false, false);
  finish_reset(env, outcome, {}, result);
}

// Resets an env into a row that already has the end of another env's episode. The row's flags and the data of that end
// stay.
void WorkerLoop::reset_into_row(HostedEnv& env, Result& result) {
  // Renewal is due here if the env became a spare, and the pool chose it before the pool could replace its worker.
  if (const auto due = successor_due(env)) return post_undone(due, result);
  nb::tuple outcome = outcome_of_reset(env, nb::object(), result);
  result.flags |= kHasFinal;
  finish_reset(env, outcome, rows_.end_in(result.row), result);
}

void WorkerLoop::finish_reset(HostedEnv& env, const nb::tuple& outcome, const End& end, Result& result) {
  env.set_needs_reset(false);
  Objects objects;
  rows_.write_obs(item(outcome, 0), result.row, objects);
  env.last_obs = nb::borrow(item(outcome, 0));
  finish_row(env, objects, item(outcome, 1), end, result);
}

// Resets an env on request and counts the episode. A reset in advance that is discarded is not counted, because it
// depends on timing whether it is made at all.
nb::tuple WorkerLoop::outcome_of_reset(HostedEnv& env, nb::object kwargs, Result& result) {
  nb::tuple outcome = make_or_take_reset(env, std::move(kwargs));
  log_.note_episode(env.index, ++env.episodes);
  result.reset_env = env.index;
  result.reset_begin_ns = env.reset_begin_ns;
  result.reset_end_ns = env.reset_end_ns;
  return outcome;
}

// Returns the outcome of a reset, (observation, info). If the reset has no arguments and was made in advance, returns
// the outcome of that reset.
nb::tuple WorkerLoop::make_or_take_reset(HostedEnv& env, nb::object kwargs) {
  if (kwargs.is_valid()) {
    catch_up(env);
    forget_ahead(env);
    return call_reset(env, std::move(kwargs));
  }
  env.is_due = false;
  const nb::object ahead = std::move(env.ahead), error = std::move(env.ahead_error);
  if (error.is_valid()) {
    meter_.begin(Op::kReset, env.index, now_ns());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
  }
  return ahead.is_valid() ? nb::borrow<nb::tuple>(ahead) : call_reset(env, std::move(kwargs));
}

// Makes the reset in advance if it is due, before a reset with other arguments. So the number of resets, and the env's
// random numbers, do not depend on whether the worker had time for the reset in advance.
void WorkerLoop::catch_up(HostedEnv& env) {
  if (env.is_due && spec_.resets_ahead) reset_ahead(env, nb::object());
  env.is_due = false;
}

// Discards a reset in advance and returns whether there was one. The discarded reset counts as no episode and takes no
// seed, because it depends on timing whether it was made at all.
bool WorkerLoop::forget_ahead(HostedEnv& env) {
  if (!env.has_reset_ahead()) return false;
  const bool was_seeded = env.progress.seeds() != env.seeds_before_ahead;
  env.progress.give_back(env.seeds_before_ahead);
  env.forget_reset_ahead();
  log_.note_ahead(env.index, false);
  if (was_seeded) hooks_.attr("give_seed_back")(env.index);
  return true;
}

// A reset in advance that is due is made before it is discarded: the env's random numbers must not depend on whether
// the worker had time for it.
void WorkerLoop::reset_anew(std::uint32_t index) {
  HostedEnv& env = env_at(index);
  const bool was_due = env.is_due;
  catch_up(env);
  env.is_due = forget_ahead(env) || was_due;
}

// Resets in advance one env that finished its episode. Returns false if no env is due. Resets only one env, because
// commands that have arrived in the meantime come first.
bool WorkerLoop::reset_one_ahead() {
  if (!spec_.resets_ahead) return false;
  auto due = std::find_if(envs_.begin(), envs_.end(), [](const HostedEnv& env) { return env.is_due; });
  if (due == envs_.end()) return false;
  reset_ahead(*due, nb::object());
  return true;
}

void WorkerLoop::reset_ahead(HostedEnv& env, nb::object kwargs) {
  const std::uint64_t before = now_ns();
  env.is_due = false;
  forget_ahead(env);
  env.seeds_before_ahead = env.progress.seeds();
  const bool is_within = command_.count != 0 && !is_message(command_.op);  // the command is taken back with the reset
  if (!is_within) log_.begin_command(env.index, LogPlace::kAhead, env.progress);
  const auto error = error_of([&] {
    own_last_obs(env);
    env.ahead = call_reset(env, std::move(kwargs));
  });
  if (error)
    env.ahead_error = nb::borrow(value_of(*error));
  else
    log_.note_ahead(env.index, true, env.seeds_before_ahead);
  now_ = now_ns();
  add(meter_.busy_ns, now_ - before);
}

// Resets an env in advance on request. The worker may have made this reset already.
void WorkerLoop::prepare(HostedEnv& env, const Command& command, Result& result) {
  result.flags |= kIsMessage;
  nb::object kwargs = read_reset_arguments(command);
  if (const auto due = kwargs.is_valid() ? successor_due(env) : 0) return post_undone(due, result);
  if (kwargs.is_valid()) catch_up(env);
  if (kwargs.is_valid() || !env.has_reset_ahead()) reset_ahead(env, std::move(kwargs));
  if (env.ahead_error.is_valid()) result.flags |= kUndone;  // the next reset raises the exception of this one
  post(result, nb::object());
}

nb::tuple WorkerLoop::call_reset(HostedEnv& env, nb::object kwargs) {
  const std::uint32_t index = env.index;
  if (must_build(env) || (spec_.renews_in_place && renewal_due(env))) renew(env);
  const std::uint64_t before = now_ns();
  meter_.begin(Op::kReset, index, before);
  begin_episode(env);
  nb::object additions = nb::none();
  auto named = [&] { return kwargs.is_valid() ? kwargs : nb::none(); };
  const bool has_seed = kwargs.is_valid() && nb::borrow<nb::dict>(kwargs).contains("seed");
  if (completes_resets_ || has_seed) {  // the hook makes the seed
    nb::object completed = hooks_.attr("complete_reset")(index, named());
    kwargs = completed[0];
    additions = completed[1];
  }
  if (log_.is_on()) {
    nb::object beginning = hooks_.attr("beginning")(index, named());
    log_.begin(index, nb::cast<Entry>(beginning[0]), PartBytes(nb::make_tuple(beginning[1])).bytes()[0]);
  }
  nb::object result = env_calls_.run([&, it = env.env] {  // `it` holds the env: another thread may replace it
    return kwargs.is_valid() ? it.attr("reset")(**nb::borrow<nb::dict>(kwargs)) : it.attr("reset")();
  });
  env.reset_begin_ns = before;
  env.reset_end_ns = now_ns();
  env.figures.resets.note(env.reset_end_ns - before);
  resetting_ += env.reset_end_ns - before;
  env.has_begun = true;
  nb::tuple outcome = results_of(result, 2, "reset() to return (observation, info)");
  check_info(item(outcome, 1));
  return additions.is_none() ? outcome : with_additions(outcome, additions);
}

// Whether the next reset has to create the env. An env that is missing after a failure is created by the worker's
// successor, if it can have one.
bool WorkerLoop::must_build(const HostedEnv& env) const {
  return env.is_unbuilt || (env.is_missing && !spec_.has_successors);
}

// Creates an env in place of the old one. If that fails, the next reset or a successor tries again.
void WorkerLoop::renew(HostedEnv& env) {
  const std::uint64_t before = now_ns();
  const bool has_failed = env.is_missing || meter_.doing() == Op::kRebuild;
  meter_.begin(Op::kRebuild, env.index, before);
  try {
    hooks_.attr("renew")(env.index);
  } catch (...) {
    env.is_missing = true;
    throw;
  }
  const std::uint64_t took = now_ns() - before;
  resetting_ += took;
  if (has_failed) add(figures_.rebuild_ns, took);
}

// Returns whether the process exceeds its memory limit. A check reads many files, so its result is used for a while.
// Once the result is true, it stays true.
bool WorkerLoop::has_grown() {
  constexpr std::uint64_t kInterval = 100'000'000;  // ns
  const std::uint64_t now = now_ns();
  if (has_grown_ || now < check_memory_at_) return has_grown_;
  has_grown_ = nb::cast<bool>(hooks_.attr("has_grown")());
  check_memory_at_ = now + kInterval;
  return has_grown_;
}

// Returns the flags of a result that report that renewal is due; 0 if it is not. Called before a reset or at the end of
// an episode. Renewal is due after the configured number of episodes, including those that a reset cut off. It is also
// due after at least one episode if the process exceeds its memory limit.
std::uint32_t WorkerLoop::renewal_due(const HostedEnv& env) {
  if (spec_.renew_every != 0 && env.episodes >= spec_.renew_every) return kRenewalDue;
  return spec_.watches_memory && env.episodes != 0 && has_grown() ? kRenewalDue | kGrown : 0;
}

// Returns the flags of `renewal_due` if the pool replaces the worker for a renewal; 0 if the worker renews the env
// itself.
std::uint32_t WorkerLoop::successor_due(const HostedEnv& env) { return spec_.renews_in_place ? 0 : renewal_due(env); }

// Answers a command that is not carried out, because the pool must first replace the worker.
void WorkerLoop::post_undone(std::uint32_t due, Result& result) {
  result.flags |= due | kUndone;
  post(result, nb::object());
}

void WorkerLoop::rebuild(HostedEnv& env, const Command& command, Result& result) {
  result.flags |= kIsMessage;
  nb::object parts = read_blob(command);
  if (parts.is_valid()) return post(result, hooks_.attr("build_beside")(command.env, parts));
  renew(env);
  post(result, nb::object());
}

nb::object WorkerLoop::read_reset_arguments(const Command& command) {
  nb::object parts = read_blob(command);
  return parts.is_valid() ? hooks_.attr("reset_arguments")(command.env, parts) : nb::object();
}

}  // namespace remuda
