#include "worker/loop.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipc/blob_parts.hpp"
#include "worker/env_results.hpp"

namespace remuda {

namespace {

// Returns columns like these, with rows elsewhere.
std::vector<Column> columns_at(const Arena& arena, const std::vector<Column>& columns,
                               const std::vector<std::uint64_t>& offsets) {
  std::vector<Column> moved;
  for (std::size_t c = 0; c < offsets.size(); ++c) {
    const auto dtype = nb::borrow(reinterpret_cast<PyObject*>(columns[c].descr()));
    moved.emplace_back(dtype, columns[c].shape(), arena.at<std::byte>(offsets[c]));
  }
  return moved;
}

}  // namespace

WorkerLoop::WorkerLoop(std::shared_ptr<Arena> arena, Plan plan, WorkerSpec spec, nb::list envs, nb::object hooks,
                       nb::handle obs_nest, std::vector<Column> obs, std::vector<Column> final_obs,
                       nb::handle action_nest, std::vector<Column> actions, std::vector<nb::object> functions,
                       std::vector<Column> computed, std::size_t step_columns)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      spec_(spec),
      hooks_(std::move(hooks)),
      action_nest_(action_nest),
      actions_(std::move(actions)),
      rows_(*arena_, plan_, hooks_, obs_nest, std::move(obs), std::move(final_obs), std::move(functions),
            std::move(computed), step_columns),
      port_(*arena_, plan_, spec_),
      figures_(arena_->at<WorkerFigures>(plan_.worker_figures)[spec.index]),
      meter_(*arena_->at<Meter>(plan_.meter(spec.index))),
      env_calls_(hooks_),
      log_(arena_, plan_),
      log_actions_(columns_at(*arena_, actions_, plan_.log_actions)),
      records_(arena_->at<Records>(Plan::kRecords)) {
  meter_.pid.store(process_id(), std::memory_order_relaxed);
  for (nb::handle env : envs) {
    const std::uint32_t index = spec_.first_env + static_cast<std::uint32_t>(envs_.size());
    Progress& progress = arena_->at<Progress>(plan_.progress)[index];
    EnvFigures& figures = arena_->at<EnvFigures>(plan_.env_figures)[index];
    HostedEnv& hosted = envs_.emplace_back(HostedEnv{index, progress, figures, nb::borrow(env)});
    hosted.is_unbuilt = env.is_none();
    hosted.results = load(progress.results);
    // If the env was reset before, this worker is a successor, and its new env needs a reset.
    if (!log_.is_resuming(index)) hosted.set_needs_reset(load(progress.resets) != 0);
    log_.begin_life(index);
    if (log_.is_on() && !env.is_none()) log_.add_made(index);
  }
}

bool WorkerLoop::run() {
  cpu_meter_.begin(port_.spun());
  try {
    while (!run_commands() && !stopped_.load(std::memory_order_acquire)) wait_for_command();
  } catch (const TakenOver&) {
    return false;
  }
  return true;
}

bool WorkerLoop::run_available() {
  if (!has_command()) return closed_;
  cpu_meter_.begin(port_.spun());
  run_commands();
  add(meter_.cpu_ns, cpu_meter_.used(now_, port_.spun()));
  return closed_;
}

bool WorkerLoop::run_commands() {
  if (!has_command()) return closed_;
  const std::uint64_t begin = now_ns();
  if (now_ != 0) figures_.idle.note(begin - now_);
  now_ = begin;
  port_.begin(now_);
  do {
    while (!closed_ && next_command()) {
      execute(command_);
      command_.count = 0;
      if (port_.is_due(now_)) {
        port_.publish(false, now_);
        has_published_ = true;
      }
    }
    // The CPU time is noted before the results are published, so that a reader of the results finds it.
    if (cpu_meter_.is_due(now_)) add(meter_.cpu_ns, cpu_meter_.used(now_, port_.spun()));
    port_.publish(true, now_);
  } while (!closed_ && reset_one_ahead());
  meter_.end();
  return closed_;
}

// Takes the next command, which is for one env. A record in the ring may have commands for several.
bool WorkerLoop::next_command() {
  if (rest_.count == 0) {
    if (!port_.pop(rest_)) return false;
    // The caller may have waited for what was published, and then sent this: it did not begin when the last one ended.
    if (std::exchange(has_published_, false)) now_ = now_ns();
  }
  command_ = rest_;
  rest_.count -= std::min(rest_.count, plan_.width);  // the count of a message is 1, whatever the width
  rest_.env += plan_.width;
  rest_.row += plan_.width;
  rest_.action += plan_.width;
  return true;
}

void WorkerLoop::wait_for_command() {
  // The bell's count is read before the ring and the flag are checked. If a thread publishes a command or stops the
  // loop in between, the bell's count reaches `ring`, and `await` returns at once.
  const std::uint32_t ring = port_.next_ring();
  if (port_.has_command() || stopped_.load(std::memory_order_acquire)) return;
  {
    nb::gil_scoped_release release;
    port_.await(ring, now_);
  }
  env_calls_.run([] {
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    return true;
  });
}

void WorkerLoop::execute(const Command& command) {
  const bool is_vector = spec_.is_vector && !is_message(command.op);
  has_stepped_ = false;
  resetting_ = 0;
  meter_.begin(command.op, command.env, now_);
  if (!is_message(command.op)) begin_in_log(command);
  Result result = result_of(command, is_vector ? plan_.width : 1);
  const auto error = error_of([&] { is_vector ? execute_vector(command, result) : execute_one(command, result); });
  if (!error) return;
  if (TakenOver::is_in(*error)) throw TakenOver{};
  fail(value_of(*error), command, result);
}

// A command that finds a reset in advance that has failed belongs together with it: the log goes on from before both.
void WorkerLoop::begin_in_log(const Command& command) {
  const HostedEnv& env = env_of(command);
  if (env.ahead_error.is_valid())
    log_.continue_command(env.index, command.sequence);
  else
    log_.begin_command(env.index, command.sequence, env.progress);
}

void WorkerLoop::execute_one(const Command& command, Result& result) {
  if (!is_message(command.op) && env_of(command).not_resumed.is_valid() && refuse(env_of(command), command, result))
    return;
  switch (command.op) {
    case Op::kReset:
      return reset(env_of(command), command, result);
    case Op::kStep:
      return step(env_of(command), command, result);
    case Op::kObserve:
      return observe(env_of(command), result);
    case Op::kResetIntoRow:
      return reset_into_row(env_of(command), result);
    case Op::kMessage:
      return message(command, result);
    case Op::kRebuild:
      return rebuild(env_of(command), command, result);
    case Op::kPrepare:
      return prepare(env_of(command), command, result);
    case Op::kResume:
      return resume(env_of(command), result);
    case Op::kClose:
      closed_ = true;
      for (HostedEnv& env : envs_) env.forget_reset_ahead();  // frees the results now, not only at garbage collection
      result.flags |= kIsMessage;
      return post(result, hooks_.attr("close")());
  }
}

Result WorkerLoop::result_of(const Command& command, std::uint32_t count) const {
  Result result{};
  result.env = command.env;
  result.row = command.row;
  result.count = count;
  result.op = command.op;
  result.sequence = command.sequence;
  result.begin_ns = now_;
  return result;
}

std::optional<std::uint32_t> WorkerLoop::take_over(std::uint64_t task) {
  if (!env_calls_.take_over([&] { return meter_.task.load(std::memory_order_acquire) == task; })) return std::nullopt;
  return meter_.current_env();
}

void WorkerLoop::give_up(nb::object stand_in, nb::handle error) {
  HostedEnv& env = env_at(meter_.current_env().value());
  env.env = std::move(stand_in);
  env.is_due = false;
  const bool is_ahead = command_.count == 0 || command_.op == Op::kPrepare;
  if (is_ahead) env.ahead_error = nb::borrow(error);  // the reset that is requested next raises it
  if (command_.count != 0) {
    Result result = result_of(command_, 1);
    if (is_ahead) {
      result.flags = kIsMessage | kUndone;
      post(result, nb::object());
    } else {
      fail(error, command_, result);
    }
    command_.count = 0;
  }
  now_ = now_ns();
  port_.publish(true, now_);
  meter_.end();
}

void WorkerLoop::replace_env(std::uint32_t index, nb::object env) {
  HostedEnv& place = env_at(index);
  place.env = std::move(env);
  if (!log_.is_resuming(index)) place.set_needs_reset(true);
  place.is_unbuilt = place.env.is_none();
  place.is_missing = place.has_begun = false;
  place.episodes = 0;
  place.is_due = false;
  place.not_resumed = nb::object();
  forget_ahead(place);
  if (log_.is_on() && !place.is_unbuilt) log_.add_made(index);
}

void WorkerLoop::step(HostedEnv& env, const Command& command, Result& result) {
  nb::object parts = read_blob(command);
  if (env.needs_reset() && spec_.autoreset == Autoreset::kNextStep) {
    Command plain{};  // an autoreset: no seed, no options, and the step's action is ignored
    reset(env, plain, result);
    return;
  }
  const nb::object action = action_from(actions_, command.action, parts);
  if (log_.is_on()) {  // before the env receives the action, because it may not survive the step
    for (std::size_t c = 0; c < actions_.size(); ++c)
      std::memcpy(log_.next_action(command.env, c), actions_[c].row(command.action), actions_[c].row_bytes());
    if (parts.is_valid()) log_.put_objects(command.env, PartBytes(parts).bytes());
    log_.add(command.env, Entry::kStep);
  }
  add(env.progress.steps, 1);
  has_stepped_ = true;
  finish_step(env, call_step(env, action), result);
}

// Returns an action from its columns, and from its parts without a column, if any.
nb::object WorkerLoop::action_from(const std::vector<Column>& columns, std::uint32_t row, const nb::object& parts) {
  const nb::object objects = parts.is_valid() ? hooks_.attr("action_objects")(parts) : nb::object();
  const bool is_as_given = parts.is_valid() && !action_nest_.has_objects();  // the one object is the whole action
  return is_as_given ? nb::object(objects[0]) : action_nest_.read(columns, row, objects);
}

nb::object WorkerLoop::call_step(HostedEnv& env, nb::handle action) {
  static PyObject* const name = PyUnicode_InternFromString("step");
  return env_calls_.run([&, it = env.env] {  // `it` holds the env: another thread may replace it
    PyObject* arguments[] = {it.ptr(), action.ptr()};
    PyObject* returned = PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (returned == nullptr) nb::raise_python_error();
    return nb::steal(returned);
  });
}

void WorkerLoop::finish_step(HostedEnv& env, nb::object outcome, Result& result) {
  const nb::tuple tuple = results_of(outcome, 5, "step() to return (observation, reward, terminated, truncated, info)");
  const double reward = rows_.write_reward(item(tuple, 1), result.row);
  bool terminated = truth(item(tuple, 2), "terminated");
  bool truncated = truth(item(tuple, 3), "truncated");
  nb::object obs = nb::borrow(item(tuple, 0));
  nb::object info = nb::borrow(item(tuple, 4));
  check_info(info);

  bool done = terminated || truncated;
  env.terminated = terminated;
  env.truncated = truncated;
  if (done || env.needs_reset()) env.set_needs_reset(done);
  count_reward(env, reward, done);
  rows_.write_step_columns(env.env, result.row, env_calls_);
  End end;
  if (done) result.flags |= successor_due(env);
  env.is_due = done && !(result.flags & kRenewalDue);  // If renewal is due, the worker's successor resets.
  if (done && spec_.autoreset == Autoreset::kSameStep) {
    end = rows_.keep_end(obs, info, result.row);
    result.flags |= kHasFinal;
    if (spec_.resets_ahead) result.flags |= kHasSpares;
    // A spare or a successor makes the reset, so this result is incomplete.
    if (result.flags & (kRenewalDue | kHasSpares)) {
      rows_.write_flags(result.row, terminated, truncated);
      rows_.note_end(end, result.row);
      return post(result, end.frozen.is_valid() ? nb::object(nb::make_tuple(end.frozen)) : nb::object());
    }
    nb::tuple fresh = outcome_of_reset(env, nb::object(), result);
    env.set_needs_reset(false);
    obs = nb::borrow(item(fresh, 0));
    info = nb::borrow(item(fresh, 1));
  }
  Objects objects;
  rows_.write_obs(obs, result.row, objects);
  env.last_obs = obs;
  rows_.write_flags(result.row, terminated, truncated);
  finish_row(env, objects, info, end, result);
}

// Counts the reward of a step. After the last step of an episode, adds the episode to the figures.
void WorkerLoop::count_reward(HostedEnv& env, double reward, bool is_last) {
  env.reward += reward;
  if (!is_last) return;
  env.figures.note_episode(env.reward, load(env.progress.steps));
}

void WorkerLoop::observe(HostedEnv& env, Result& result) {
  if (!env.last_obs.is_valid()) throw nb::value_error("there is no observation before the first reset");
  Objects objects;
  rows_.write_obs(env.last_obs, result.row, objects);
  rows_.repeat_computed(env.last_computed, result.row);
  rows_.clear_reward(result.row);
  rows_.write_flags(result.row, false, false);
  post(result, rows_.write_info(objects, nb::dict(), {}, result.row, result.flags));
}

// Replaces the last observation by a copy, because it may be a buffer that the env reuses. Called before any code of
// the env runs other than its next step or reset.
void WorkerLoop::own_last_obs(HostedEnv& env) {
  if (!env.last_obs.is_valid() || env.last_obs.is(env.own_obs)) return;
  env.last_obs = env.own_obs = hooks_.attr("copy_obs")(env.last_obs);
}

void WorkerLoop::message(const Command& command, Result& result) {
  result.flags |= kIsMessage;
  const bool is_for_env = command.env != kWholeWorker;
  if (log_.is_on() && is_for_env) log_.count_call(command.env);
  const nb::object parts = read_blob(command);
  if (is_for_env) own_last_obs(env_of(command));
  post(result, hooks_.attr("handle")(is_for_env ? nb::object(nb::int_(command.env)) : nb::none(), parts));
}

void WorkerLoop::fail(nb::handle error, const Command& command, Result& result, std::uint32_t flags) {
  nb::object slot = command.env == kWholeWorker ? nb::none() : nb::object(nb::int_(command.env));
  result.flags = kIsFailure | flags;
  if (is_message(command.op))
    result.flags |= kIsMessage;
  else
    env_of(command).last_obs = nb::object();  // The failed operation may have left the env's buffers half written.
  post(result, describe(error, slot));
}

// `is_second`: whether the first try has raised `error`.
nb::object WorkerLoop::describe(nb::handle error, nb::handle slot, bool is_second) {
  static constexpr const char* kNames[] = {"reset", "step",  "observe", "call", "close",
                                           "reset", "build", "reset",   "build"};
  const Op doing = meter_.doing();  // the op of the current task, which may be a reset within a step
  try {
    return hooks_.attr("describe")(error, slot, kNames[static_cast<int>(doing)]);
    // A signal handler may raise in a loop in the caller's thread. Then its exception is described instead of the
    // error.
  } catch (nb::python_error& interrupt) {
    if (is_second && interrupt.matches(PyExc_Exception)) throw;
    return describe(value_of(interrupt), slot, true);
  }
}

// Copies the row to one of the env's kept rows, for the case that the worker dies before it fills the next one.
void WorkerLoop::keep_last(HostedEnv& env, std::uint32_t row) {
  if (!plan_.keeps_last) return;
  rows_.keep(row, plan_.kept_row(env.index, ++env.results), env.needs_reset());
  // After the row was copied: the release store makes the kept row visible to the pool.
  env.progress.results.store(env.results, std::memory_order_release);
}

void WorkerLoop::finish_row(HostedEnv& env, const Objects& objects, nb::handle info, const End& end, Result& result) {
  rows_.write_computed(env.env, result.row, env.last_computed, env_calls_);
  post_row(env, objects, info, end, result);
}

// Writes the info, copies the row to a kept row, and posts the result. The copy is made and counted after everything
// that can fail. Otherwise the kept rows would be one ahead of the results that the pool has received.
void WorkerLoop::post_row(HostedEnv& env, const Objects& objects, nb::handle info, const End& end, Result& result) {
  nb::object rest = rows_.write_info(objects, info, end, result.row, result.flags);
  if (log_.resumes()) {
    const std::uint64_t entry = log_.entries(env.index) - 1;
    log_.digest(env.index, entry) =
        rows_.digest(objects, info, result.row, log_.kind(env.index, entry) == Entry::kStep);
  }
  keep_last(env, result.row);
  post(result, rest);
}

nb::object WorkerLoop::read_blob(const Command& command) {
  if (command.flags & kOnSocket) return hooks_.attr("receive")();
  return command.flags & kHasBlob ? port_.read_blob() : nb::object();
}

void WorkerLoop::post(Result& result, nb::object parts) {
  if (parts.is_valid()) result.flags |= port_.write_blob(parts) ? kHasBlob : kOnSocket;
  now_ = result.end_ns = now_ns();
  const std::uint64_t took = result.end_ns - result.begin_ns;
  add(meter_.busy_ns, took);
  add(meter_.steps, result.flags & kIsMessage ? 0 : result.count);
  if (has_stepped_) env_at(result.env).figures.steps.note(took - std::min(took, resetting_));
  port_.push(result);
  if (!(result.flags & kOnSocket)) return;
  // The result goes first, because it makes the pool read the socket. Nothing else would make room for a long write. So
  // the pool must not go on waiting for further results. It may also have looked for the message before it was there.
  port_.publish(true, now_);
  port_.wake_pool();
  hooks_.attr(result.flags & (kIsMessage | kIsFailure) ? "send" : "send_row")(parts);
  port_.wake_pool();
  now_ = now_ns();
}

}  // namespace remuda
