#include "worker/loop.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "ipc/blob_parts.hpp"
#include "os/this_thread.hpp"
#include "worker/env_results.hpp"

namespace remuda {

namespace {

nb::list as_list(const Objects& objects) {
  nb::list list;
  for (const nb::object& object : objects) list.append(object);
  return list;
}

}  // namespace

WorkerLoop::WorkerLoop(std::shared_ptr<Arena> arena, Plan plan, WorkerSpec spec, nb::list envs, nb::object hooks,
                       nb::handle obs_nest, std::vector<Column> obs, std::vector<Column> final_obs,
                       nb::handle action_nest, std::vector<Column> actions, ComputedColumns computed)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      spec_(spec),
      hooks_(std::move(hooks)),
      obs_nest_(obs_nest),
      action_nest_(action_nest),
      obs_(std::move(obs)),
      final_obs_(std::move(final_obs)),
      actions_(std::move(actions)),
      computed_(std::move(computed)),
      log_(arena_, plan_),
      ringer_(arena_->at<Bell>(Plan::kPoolBell)),
      spin_policy_(*arena_->at<SharedCores>(Plan::kCores), spec.index, Nanoseconds(spec.spin_ns),
                   spec.spins_heedlessly) {
  progress_ = arena_->at<Progress>(plan_.progress);
  env_figures_ = arena_->at<EnvFigures>(plan_.env_figures);
  figures_ = arena_->at<WorkerFigures>(plan_.worker_figures) + spec_.index;
  for (nb::handle env : envs) {
    envs_.push_back({nb::borrow(env)});
    envs_.back().is_unbuilt = env.is_none();
    const Progress& so_far = progress_[index_of(envs_.back())];
    envs_.back().results = so_far.results.load(std::memory_order_relaxed);
    set_needs_reset(envs_.back(), so_far.resets.load(std::memory_order_relaxed) != 0);  // we are a successor
    if (log_.is_on() && !env.is_none()) log_.add(index_of(envs_.back()), Entry::kMade);
  }
  std::uint32_t w = spec_.index;
  bell_ = arena_->at<Bell>(plan_.bell(w));
  words_ = arena_->at<Words>(Plan::kWords);
  meter_ = arena_->at<Meter>(plan_.meter(w));
  meter_->pid.store(process_id(), std::memory_order_relaxed);
  commands_ = {arena_->at<RingHeader>(plan_.commands(w)), plan_.ring_capacity};
  results_ = {arena_->at<RingHeader>(plan_.results(w)), plan_.ring_capacity};
  blobs_in_ = {arena_->at<BlobHeader>(plan_.blobs_in(w)), plan_.blob_bytes};
  blobs_out_ = {arena_->at<BlobHeader>(plan_.blobs_out(w)), plan_.blob_bytes};
  reward_ = arena_->at<double>(plan_.columns[kReward]);
  terminated_ = arena_->at<bool>(plan_.columns[kTerminated]);
  truncated_ = arena_->at<bool>(plan_.columns[kTruncated]);
  info_mask_ = arena_->at<std::uint64_t>(plan_.columns[kInfoMask]);
}

void WorkerLoop::run() {
  cpu_meter_.begin(spin_policy_.spun());
  while (!run_commands() && !stopped_.load(std::memory_order_acquire)) wait_for_command();
}

bool WorkerLoop::run_available() {
  if (commands_.empty()) return closed_;
  cpu_meter_.begin(spin_policy_.spun());
  run_commands();
  note_cpu();
  return closed_;
}

bool WorkerLoop::run_commands() {
  Command command;
  if (commands_.empty()) return closed_;
  last_publish_ = now_ns();
  if (now_ != 0) figures_->idle.note(last_publish_ - now_);
  now_ = last_publish_;
  do {
    while (!closed_ && commands_.pop(command)) {
      for (bool is_last = false; !is_last; next_env(command)) {
        is_last = command.count <= plan_.width;
        execute(command);
        if (now_ - last_publish_ >= spec_.publish_ns) publish(false);
      }
    }
    if (cpu_meter_.is_due(now_)) note_cpu();  // before the results: who has those finds it noted
    publish(true);
  } while (!closed_ && reset_one_ahead());
  meter_->task.store(0, std::memory_order_release);  // after the results: who sees this sees those
  return closed_;
}

void WorkerLoop::next_env(Command& command) const {
  command.count -= plan_.width;
  command.env += plan_.width;
  command.row += plan_.width;
  command.action += plan_.width;
}

void WorkerLoop::note_cpu() { add(meter_->cpu_ns, cpu_meter_.used(now_, spin_policy_.spun())); }

void WorkerLoop::wait_for_command() {
  // The target is read before the ring and the flag, so whoever publishes or stops us in between rings past it.
  std::uint32_t target = bell_->notified.load(std::memory_order_acquire) + 1;
  if (!commands_.empty() || stopped_.load(std::memory_order_acquire)) return;
  {
    nb::gil_scoped_release release;
    wait(*bell_, target, kSlice, spin_policy_, Clock::time_point(Nanoseconds(now_)));
  }
  if (PyErr_CheckSignals() != 0) nb::raise_python_error();
}

void WorkerLoop::execute(const Command& command) {
  if (spec_.is_vector && !is_message(command.op)) return execute_vector(command);
  Result result = begin_result(command, 1);
  try {
    switch (command.op) {
      case Op::kReset:
        reset(env_of(command), command, result);
        break;
      case Op::kStep:
        step(env_of(command), command, result);
        break;
      case Op::kObserve:
        observe(env_of(command), result);
        break;
      case Op::kResetIntoRow:
        reset_into_row(env_of(command), result);
        break;
      case Op::kMessage:
        message(command, result);
        break;
      case Op::kRebuild:
        rebuild(env_of(command), command, result);
        break;
      case Op::kPrepare:
        prepare(env_of(command), command, result);
        break;
      case Op::kClose:
        closed_ = true;
        result.flags |= kIsMessage;
        post(result, hooks_.attr("close")());
        break;
    }
  } catch (nb::python_error& error) {
    fail(error, command, result);
  } catch (nb::builtin_exception& error) {
    nb::python_error python_error = as_python(error);
    fail(python_error, command, result);
  }
}

Result WorkerLoop::begin_result(const Command& command, std::uint32_t count) {
  Result result{};
  result.env = command.env;
  result.row = command.row;
  result.count = count;
  result.op = command.op;
  result.sequence = command.sequence;
  result.begin_ns = now_;
  begin(command.op, command.env, now_);
  has_stepped_ = false;
  resetting_ = 0;
  return result;
}

// For deadlines and death reports, which the pool makes from outside.
void WorkerLoop::begin(Op op, std::uint32_t index, std::uint64_t now) {
  meter_->env.store(index, std::memory_order_relaxed);
  meter_->task.store(Task::pack(op, now), std::memory_order_release);
}

std::optional<std::uint32_t> WorkerLoop::current_env() const {
  const bool is_idle = meter_->task.load(std::memory_order_relaxed) == 0;
  const std::uint32_t index = meter_->env.load(std::memory_order_relaxed);
  return is_idle || index == kWholeWorker ? std::nullopt : std::optional(index);
}

void WorkerLoop::replace_env(std::uint32_t index, nb::object env) {
  Env& place = envs_[index - spec_.first_env];
  place.env = std::move(env);
  place.last_obs.reset();
  set_needs_reset(place, true);
  place.is_missing = place.is_unbuilt = place.has_begun = false;
  place.episodes = 0;
  place.is_due = false;
  forget_ahead(place);
  if (log_.is_on()) log_.add(index, Entry::kMade);
}

// -- the ops ---------------------------------------------------------------------------------------

void WorkerLoop::step(Env& env, const Command& command, Result& result) {
  nb::object parts = read_blob(command);
  if (env.needs_reset && spec_.autoreset == Autoreset::kNextStep) {
    Command plain{};  // an autoreset has no seed and no options, and ignores the action
    reset(env, plain, result);
    return;
  }
  static PyObject* const name = PyUnicode_InternFromString("step");
  nb::object objects = parts.is_valid() ? hooks_.attr("action_objects")(parts) : nb::object();
  nb::object action = action_nest_.read(actions_, command.action, objects);
  if (log_.is_on()) log_action(command, parts);
  add(progress_[command.env].steps, 1);
  has_stepped_ = true;
  PyObject* arguments[] = {env.env.ptr(), action.ptr()};
  PyObject* outcome = PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (outcome == nullptr) nb::raise_python_error();
  finish_step(env, nb::steal(outcome), result);
}

// Before the env sees it: it may be the last.
void WorkerLoop::log_action(const Command& command, nb::handle parts) {
  for (std::size_t c = 0; c < actions_.size(); ++c)
    std::memcpy(log_.next_action(command.env, c), actions_[c].row(command.action), actions_[c].row_bytes());
  if (parts.is_valid()) log_.put_objects(command.env, PartBytes(parts).bytes());
  log_.add(command.env, Entry::kStep);
}

void WorkerLoop::finish_step(Env& env, nb::object outcome, Result& result) {
  if (!PyTuple_Check(outcome.ptr()) || PyTuple_GET_SIZE(outcome.ptr()) != 5)
    reject("step() to return (observation, reward, terminated, truncated, info)", outcome);
  auto tuple = nb::borrow<nb::tuple>(outcome);
  double reward = number(item(tuple, 1));
  bool terminated = truth(item(tuple, 2), "terminated");
  bool truncated = truth(item(tuple, 3), "truncated");
  nb::object obs = nb::borrow(item(tuple, 0));
  nb::object info = nb::borrow(item(tuple, 4));
  check_info(info);

  bool done = terminated || truncated;
  env.terminated = terminated;
  env.truncated = truncated;
  if (done || env.needs_reset) set_needs_reset(env, done);
  count_reward(env, reward, done);
  End end;
  if (done) result.flags |= successor_due(env);
  env.is_due = done && !(result.flags & kRenewalDue);  // else it is not this env that will be reset
  if (done && spec_.autoreset == Autoreset::kSameStep) {
    end = keep_end(obs, info, result.row);
    result.flags |= kHasFinal;
    if (spec_.resets_ahead) result.flags |= kHasSpares;
    if (result.flags & (kRenewalDue | kHasSpares)) {  // the reset is another's: this is not the whole result yet
      write_flags(result.row, reward, terminated, truncated);
      info_mask_[result.row] = end.columns;
      return post(result, end.frozen.is_valid() ? nb::object(nb::make_tuple(end.frozen)) : nb::object());
    }
    nb::tuple fresh = outcome_of_reset(env, nb::object(), result);
    set_needs_reset(env, false);
    obs = nb::borrow(item(fresh, 0));
    info = nb::borrow(item(fresh, 1));
  }
  Objects objects;
  write_obs(obs_, obs, result.row, objects);
  env.last_obs = obs;
  write_flags(result.row, reward, terminated, truncated);
  finish_row(env, objects, info, end, result);
}

// Of a step; if it is the last of its episode, that goes to the figures.
void WorkerLoop::count_reward(Env& env, double reward, bool is_last) {
  env.reward += reward;
  if (!is_last) return;
  const std::uint32_t index = index_of(env);
  env_figures_[index].note_episode(env.reward, progress_[index].steps.load(std::memory_order_relaxed));
}

// The pool can see it, too.
void WorkerLoop::set_needs_reset(Env& env, bool needs_reset) {
  env.needs_reset = needs_reset;
  progress_[index_of(env)].needs_reset.store(needs_reset, std::memory_order_relaxed);
}

// The terminal observation and info are copied before the reset: envs reuse their buffers.
WorkerLoop::End WorkerLoop::keep_end(nb::handle obs, nb::handle info, std::uint32_t row) {
  End end;
  Objects objects;
  // Arrays that went into the columns of observations as they are come back from there.  Anything else (a Python int, a
  // list, an array of another dtype) is kept as the env gave it, in info columns or frozen.
  bool is_kept = write_obs(final_obs_, obs, row, objects) == Fit::kAsIs && obs_nest_.is_plain(obs.ptr());
  if (!is_kept && objects.empty()) {
    const auto columns = infos_.write_final_obs(obs, row);
    is_kept = columns.has_value();
    end.columns |= columns.value_or(0);
  }
  const auto columns = infos_.write_final_info(info, row);
  end.columns |= columns.value_or(0);
  if (is_kept && columns) return end;
  end.frozen = hooks_.attr("freeze")(is_kept ? nb::handle(Py_None) : obs, columns ? nb::handle(nb::dict()) : info);
  return end;
}

void WorkerLoop::observe(Env& env, Result& result) {
  if (!env.last_obs.is_valid()) return observe_kept(env, result);
  Objects objects;
  write_obs(obs_, env.last_obs, result.row, objects);
  if (computed_.any()) computed_.write_kept(env.last_computed, result.row);
  write_flags(result.row, 0.0, false, false);
  post(result, pack_rest(objects, nb::dict(), {}, result));
}

// Of an env that has taken the place of another, and has not been reset: what that one has shown last.
void WorkerLoop::observe_kept(Env& env, Result& result) {
  if (!plan_.keeps_last || env.results == 0 || obs_nest_.has_objects())
    throw nb::value_error("there is no observation before the first reset");
  const std::uint32_t kept = plan_.kept_row(index_of(env), env.results);
  for (const Column& column : obs_) std::memcpy(column.row(result.row), column.row(kept), column.row_bytes());
  write_flags(result.row, 0.0, false, false);
  info_mask_[result.row] = 0;
  post(result, nb::object());
}

void WorkerLoop::message(const Command& command, Result& result) {
  result.flags |= kIsMessage;
  nb::object slot = command.env == kWholeWorker ? nb::none() : nb::object(nb::int_(command.env));
  if (log_.is_on() && command.env != kWholeWorker) log_.count_call(command.env);
  post(result, hooks_.attr("handle")(slot, read_blob(command)));
}

void WorkerLoop::fail(nb::python_error& error, const Command& command, Result& result) {
  nb::object slot = command.env == kWholeWorker ? nb::none() : nb::object(nb::int_(command.env));
  result.flags = kIsFailure;
  if (is_message(command.op)) result.flags |= kIsMessage;
  post(result, describe(error, slot));
}

nb::object WorkerLoop::describe(nb::python_error& error, nb::handle slot) {
  static constexpr const char* kNames[] = {"reset", "step", "observe", "call", "close", "reset", "build", "reset"};
  const Op doing = Task::op(meter_->task.load(std::memory_order_relaxed));  // a step may have been resetting
  if (error.traceback().is_valid()) PyException_SetTraceback(error.value().ptr(), error.traceback().ptr());
  try {
    return hooks_.attr("describe")(error.value(), slot, kNames[static_cast<int>(doing)]);
  } catch (nb::python_error& interrupt) {  // Ctrl-C, where the caller is the worker: it is told instead
    if (interrupt.matches(PyExc_Exception)) throw;
    return describe(interrupt, slot);
  }
}

// -- the row ---------------------------------------------------------------------------------------

void WorkerLoop::write_flags(std::uint32_t row, double reward, bool terminated, bool truncated) {
  reward_[row] = reward;
  terminated_[row] = terminated;
  truncated_[row] = truncated;
}

// Of the env as it is now, which may raise.
void WorkerLoop::write_computed(Env& env, std::uint32_t row) {
  computed_.write(env.env, row, hooks_);
  computed_.keep(row, env.last_computed);
}

// Keeps the row for the pool, in case that we do not live to fill the next one.
void WorkerLoop::keep_last(Env& env, std::uint32_t row) {
  if (!plan_.keeps_last) return;
  const std::uint32_t index = index_of(env), kept = plan_.kept_row(index, ++env.results);
  auto copy = [&](const Column& column) { std::memcpy(column.row(kept), column.row(row), column.row_bytes()); };
  for (const Column& column : obs_) copy(column);
  for (const Column& column : computed_.columns()) copy(column);
  // Over as far as the next command is concerned: after a same-step autoreset it is not.
  terminated_[kept] = env.needs_reset && terminated_[row];
  truncated_[kept] = env.needs_reset && truncated_[row];
  progress_[index].results.store(env.results, std::memory_order_release);
}

Fit WorkerLoop::write_obs(const std::vector<Column>& columns, nb::handle obs, std::uint32_t row, Objects& objects) {
  const Fit fit = obs_nest_.write(obs.ptr(), columns, row, objects);
  if (fit != Fit::kNone) return fit;
  // It needs more than a plain cast, or it is wrong: the slow path knows how to say which.
  nb::object flat = hooks_.attr("flatten")(obs);
  std::size_t i = 0;
  for (nb::handle array : flat[0])
    if (!columns[i++].write(array.ptr(), row))
      throw nb::value_error("an observation leaf was not flattened to its column");
  objects.clear();
  for (nb::handle object : flat[1]) objects.push_back(nb::borrow(object));
  return Fit::kCast;
}

// Last of all, keeps the row and posts it: a row is counted only once nothing of its result can fail any more, or what
// is kept would be one ahead of what the pool has received.
void WorkerLoop::finish_row(Env& env, const Objects& objects, nb::handle info, const End& end, Result& result) {
  if (computed_.any()) write_computed(env, result.row);
  nb::object rest = pack_rest(objects, info, end, result);
  keep_last(env, result.row);
  post(result, rest);
}

// Writes the info into its columns; returns what has none, to be sent along; null when there is nothing.
nb::object WorkerLoop::pack_rest(const Objects& objects, nb::handle info, const End& end, Result& result) {
  nb::object rest;
  const bool is_empty = PyDict_GET_SIZE(info.ptr()) == 0;
  info_mask_[result.row] = end.columns | (is_empty ? 0 : infos_.write(info, result.row, rest));
  const nb::object wanted = infos_.take_wanted();
  if (objects.empty() && !rest.is_valid() && !end.frozen.is_valid() && !wanted.is_valid()) return nb::object();
  if (wanted.is_valid()) result.flags |= kHasNewKeys;
  auto or_none = [](const nb::object& o) { return o.is_valid() ? o : nb::object(nb::none()); };
  return hooks_.attr("pack")(as_list(objects), or_none(rest), or_none(wanted), or_none(end.frozen));
}

// -- in and out ------------------------------------------------------------------------------------

nb::object WorkerLoop::read_blob(const Command& command) {
  if (command.flags & kOnSocket) return hooks_.attr("receive")();
  if (!(command.flags & kHasBlob)) return nb::object();
  return read_parts(blobs_in_);
}

void WorkerLoop::post(Result& result, nb::object parts) {
  if (parts.is_valid()) {
    bool fits = write_parts(blobs_out_, parts);
    result.flags |= fits ? kHasBlob : kOnSocket;
  }
  now_ = result.end_ns = now_ns();
  add(meter_->steps, result.flags & kIsMessage ? 0 : result.count);
  const std::uint64_t took = result.end_ns - result.begin_ns;
  add(meter_->busy_ns, took);
  if (has_stepped_) env_figures_[result.env].steps.note(took - std::min(took, resetting_));
  if (!join_run(result)) results_.push(result);
  unpublished_ += result.count;
  if (result.flags & kOnSocket) {
    // The record goes first: it tells the pool to read, without which a long write would never end.
    publish(true);
    hooks_.attr("send")(parts);
    now_ = now_ns();
  }
}

// Lengthens the run before instead of taking a record of its own.  What takes long has one: its times are its own.
bool WorkerLoop::join_run(const Result& result) {
  Result* run = results_.unpublished();
  if (run == nullptr || run->flags != 0 || result.flags != 0) return false;
  if (run->sequence != result.sequence) return false;  // another command's may be for another part of the pool
  if (result.end_ns - result.begin_ns >= spec_.publish_ns) return false;
  if (run->env + run->count != result.env || run->row + run->count != result.row) return false;
  run->count += result.count;
  run->end_ns = result.end_ns;
  if (result.reset_begin_ns != 0) {
    run->reset_env = result.reset_env;
    run->reset_begin_ns = result.reset_begin_ns;
    run->reset_end_ns = result.reset_end_ns;
  }
  return true;
}

// `is_all`: nothing else is under way; or nothing will be before the pool has seen to this.
void WorkerLoop::publish(bool is_all) {
  last_publish_ = now_;
  if (unpublished_ != 0) results_.publish();
  const std::uint32_t count = std::exchange(unpublished_, 0);
  if (is_all)
    ringer_.ring_for_all(count);
  else
    ringer_.ring_for_some(count);
}

}  // namespace remuda
