// Resets in the worker: when asked, in advance, and of an env that was built anew.
#include <algorithm>

#include "ipc/blob_parts.hpp"
#include "python/limited_api.hpp"
#include "worker/env_results.hpp"
#include "worker/loop.hpp"

namespace remuda {

namespace {

// In a copy: the dict is the env's, which may go on using it.
nb::tuple with_additions(const nb::tuple& outcome, nb::handle additions) {
  nb::object info = nb::steal(PyDict_Copy(item(outcome, 1).ptr()));
  if (!info.is_valid() || PyDict_Update(info.ptr(), additions.ptr()) < 0) nb::raise_python_error();
  return nb::make_tuple(item(outcome, 0), info);
}

}  // namespace

void WorkerLoop::reset(HostedEnv& env, const Command& command, Result& result) {
  nb::object arguments = read_reset_arguments(command);
  if (const auto due = successor_due(env)) {  // in mid-episode: else the end of the episode has said so
    result.flags |= due | kUndone;
    return post(result, nb::object());
  }
  if (arguments.is_valid() && !PyDict_Check(arguments.ptr())) return restore(env, arguments, result);
  nb::tuple outcome = outcome_of_reset(env, std::move(arguments), result);
  rows_.write_flags(result.row, 0.0, false, false);
  finish_reset(env, outcome, {}, result);
}

// With a reset that completes the row of somebody else's step: its flags stay, and what it told of the end.
void WorkerLoop::reset_into_row(HostedEnv& env, Result& result) {
  if (const auto due = successor_due(env)) {  // it became a spare a moment ago, and was taken before it could go
    result.flags |= due | kUndone;
    return post(result, nb::object());
  }
  nb::tuple outcome = outcome_of_reset(env, nb::object(), result);
  result.flags |= kHasFinal;
  finish_reset(env, outcome, rows_.end_in(result.row), result);
}

void WorkerLoop::finish_reset(HostedEnv& env, const nb::tuple& outcome, const End& end, Result& result) {
  set_needs_reset(env, false);
  Objects objects;
  rows_.write_obs(item(outcome, 0), result.row, objects);
  env.last_obs = nb::borrow(item(outcome, 0));
  finish_row(env, objects, item(outcome, 1), end, result);
}

// An episode has begun that somebody asked for. (Whether one that is thrown away was begun in time is chance.)
nb::tuple WorkerLoop::outcome_of_reset(HostedEnv& env, nb::object kwargs, Result& result) {
  nb::tuple outcome = make_or_take_reset(env, std::move(kwargs));
  ++env.episodes;
  result.reset_env = env.index;
  result.reset_begin_ns = env.reset_begin_ns;
  result.reset_end_ns = env.reset_end_ns;
  return outcome;
}

// A plain reset may have been made already.
nb::tuple WorkerLoop::make_or_take_reset(HostedEnv& env, nb::object kwargs) {
  if (kwargs.is_valid()) {
    catch_up(env, kwargs);
    forget_ahead(env);
    return call_reset(env, std::move(kwargs));
  }
  env.is_due = false;
  nb::object ahead = std::move(env.ahead);
  auto ahead_error = std::move(env.ahead_error);
  env.forget_reset_ahead();
  if (ahead_error) {
    meter_.begin(Op::kReset, env.index, now_ns());
    throw nb::python_error(*ahead_error);
  }
  return ahead.is_valid() ? nb::borrow<nb::tuple>(ahead) : call_reset(env, std::move(kwargs));
}

// Before a reset with arguments: whether there was time for the one ahead of it must not matter to the env's random
// numbers, with which it goes on unless it is given a seed.
void WorkerLoop::catch_up(HostedEnv& env, const nb::object& kwargs) {
  if (env.is_due && spec_.resets_ahead && !PyDict_GetItemString(kwargs.ptr(), "seed")) reset_ahead(env, nb::object());
  env.is_due = false;
}

// Whether there was anything. It has been no episode, and has taken no seed: whether it was made in time is chance.
bool WorkerLoop::forget_ahead(HostedEnv& env) {
  if (!env.has_reset_ahead()) return false;
  const bool was_seeded = counts_.seeds(env.index) != env.seeds_before_ahead;
  counts_.give_back(env.index, env.seeds_before_ahead);
  env.forget_reset_ahead();
  if (was_seeded) hooks_.attr("give_seed_back")(env.index);
  return true;
}

// As in `catch_up`, there must have been time for it.
void WorkerLoop::reset_anew(std::uint32_t index) {
  HostedEnv& env = env_at(index);
  if (env.is_due && spec_.resets_ahead) reset_ahead(env, nb::object());
  env.is_due = forget_ahead(env) || env.is_due;
}

// Resets an env whose episode has ended; false when there is none. One at a time: what has come in the meantime is
// first.
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
  env.seeds_before_ahead = counts_.seeds(env.index);
  try {
    own_last_obs(env);
    env.ahead = call_reset(env, std::move(kwargs));
  } catch (nb::python_error& error) {
    env.ahead_error.emplace(error);
  } catch (nb::builtin_exception& error) {
    env.ahead_error.emplace(as_python(error));
  }
  now_ = now_ns();
  meter_.note_busy(now_ - before);
}

// In advance; `reset_ahead` may have been there before.
void WorkerLoop::prepare(HostedEnv& env, const Command& command, Result& result) {
  result.flags |= kIsMessage;
  nb::object kwargs = read_reset_arguments(command);
  if (const auto due = kwargs.is_valid() ? successor_due(env) : 0) {  // see `reset`
    result.flags |= due | kUndone;
    return post(result, nb::object());
  }
  if (kwargs.is_valid()) catch_up(env, kwargs);
  if (kwargs.is_valid() || !env.has_reset_ahead()) reset_ahead(env, std::move(kwargs));
  if (env.ahead_error) result.flags |= kUndone;  // the next reset says why
  post(result, nb::object());
}

nb::tuple WorkerLoop::call_reset(HostedEnv& env, nb::object kwargs) {
  const std::uint32_t index = env.index;
  if (is_to_be_made(env) || (spec_.renews_in_place && renewal_due(env))) renew(env);
  const std::uint64_t before = now_ns();
  meter_.begin(Op::kReset, index, before);
  begin_episode(env);
  nb::object additions = nb::none();
  auto named = [&] { return kwargs.is_valid() ? kwargs : nb::none(); };
  if (completes_resets_) {
    nb::object completed = hooks_.attr("complete_reset")(index, named());
    kwargs = completed[0];
    additions = completed[1];
  }
  if (log_.is_on()) {
    nb::object beginning = hooks_.attr("beginning")(index, named());
    log_.begin(index, nb::cast<Entry>(beginning[0]), PartBytes(nb::make_tuple(beginning[1])).bytes()[0]);
  }
  nb::object result =
      kwargs.is_valid() ? env.env.attr("reset")(**nb::borrow<nb::dict>(kwargs)) : env.env.attr("reset")();
  env.reset_begin_ns = before;
  env.reset_end_ns = now_ns();
  meter_.note_reset(index, env.reset_end_ns - before);
  env.has_begun = true;
  if (!PyTuple_Check(result.ptr()) || PyTuple_GET_SIZE(result.ptr()) != 2)
    reject("reset() to return (observation, info)", result);
  auto outcome = nb::borrow<nb::tuple>(result);
  check_info(item(outcome, 1));
  return additions.is_none() ? outcome : with_additions(outcome, additions);
}

// Where this fails, it is tried again before the next reset, unless that is a successor's.
void WorkerLoop::renew(HostedEnv& env) {
  const std::uint64_t before = now_ns();
  meter_.begin(Op::kRebuild, env.index, before);
  try {
    hooks_.attr("renew")(env.index);
  } catch (...) {
    env.is_missing = true;
    throw;
  }
  meter_.note_renewal(now_ns() - before);
}

// Before a reset, or at the end of an episode: whether it has had its number of episodes, be it that they ended or that
// a reset cut them off; or has lived for one at least, in a process that has grown too large.  As flags of a result.
std::uint32_t WorkerLoop::renewal_due(const HostedEnv& env) {
  if (spec_.renew_every != 0 && env.episodes >= spec_.renew_every) return kRenewalDue;
  return spec_.watches_memory && env.episodes != 0 && memory_watch_.has_grown() ? kRenewalDue | kGrown : 0;
}

// The same of one whose worker is replaced for that.
std::uint32_t WorkerLoop::successor_due(const HostedEnv& env) { return spec_.renews_in_place ? 0 : renewal_due(env); }

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
