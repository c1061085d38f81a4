#include "pool/hub/hub.hpp"

#include <algorithm>
#include <numeric>

namespace remuda {

namespace {

std::vector<std::uint32_t> numbers_below(std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Reads a list, tuple or array of ints. Returns false for anything else, including bools and boolean masks.
bool read_ints(nb::handle list, std::vector<std::int64_t>& ints) {
  if (PyArray_Check(list.ptr())) {
    auto* array = as_array(list);
    if (PyArray_NDIM(array) != 1 || !PyArray_ISINTEGER(array)) return false;
    if (PyArray_TYPE(array) == NPY_INT64 && PyArray_ISCARRAY_RO(array)) {
      const auto* data = data_of<const npy_int64>(list);
      ints.assign(data, data + PyArray_SIZE(array));
      return true;
    }
  } else if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr())) {
    return false;
  }
  for (nb::handle one : list) {
    if (PyBool_Check(one.ptr())) return false;
    ints.push_back(PyNumber_AsSsize_t(one.ptr(), nullptr));  // Clips an int that is too large for a slot anyway.
    if (ints.back() != -1 || !PyErr_Occurred()) continue;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) nb::raise_python_error();
    PyErr_Clear();
    return false;
  }
  return true;
}

}  // namespace

Hub::Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
         std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> computed, Actions actions,
         const nb::sequence& queues, std::int64_t spin_ns, std::uint32_t max_running, bool one_sleeps, bool ignore_load)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      lendings_(Lendings::make(arena_, plan_.slots)),
      columns_(std::make_shared<BatchColumns>(
          BatchColumns{std::move(columns), std::move(final_columns), std::move(computed), {}})),
      slots_(*arena_, plan_, autoreset, envs_of_worker, LastResults(plan_, columns_)),
      workers_(arena_, plan_, envs_of_worker, queues, max_running),
      bell_(*arena_->at<Bell>(Plan::kPoolBell), *arena_->at<SharedCores>(Plan::kCores), Nanoseconds(spin_ns),
            ignore_load),
      actions_(std::move(actions)),
      frame_taker_(arena_, columns_),
      rollout_store_(std::make_shared<RolloutStore>(arena_, plan_.rollout_rows, lend_columns())),
      callbacks_{.batch_type = nb::borrow(nb::type<Batch>())},
      caller_meter_(*arena_->at<CallerFigures>(plan_.caller_figures), *arena_->at<SharedCores>(Plan::kCores)) {
  if (one_sleeps) bell_.appoint_sleeper(plan_.workers - 1);
  split({numbers_below(plan_.slots)});
}

// Registers the memory that arrays of batches and rollouts may view. Returns the rows of each column that rollouts may
// use; the action columns come last. Row `slots` of these corresponds to the first row for rollouts of the others.
std::vector<RolloutStore::Rows> Hub::lend_columns() {
  std::vector<RolloutStore::Rows> rows;
  const std::uint32_t first = plan_.first_rollout_row();
  const std::size_t first_computed = columns_->columns.size() + 1;  // `columns` lacks `kInfo`.
  for (std::size_t c = 0; c < plan_.columns.size(); ++c) {
    const std::uint64_t offset = plan_.columns[c], bytes = plan_.column_bytes[c];
    if (c == kInfo) continue;
    const bool is_computed = c >= first_computed && c < first_computed + columns_->computed.size();
    rows.push_back({offset + bytes * first, bytes, is_computed || c <= kTruncated});
    lendings_->add_column(arena_->at<std::byte>(offset), bytes);
  }
  for (std::size_t c = 0; c < plan_.actions.size(); ++c) {
    const std::uint64_t bytes = plan_.action_bytes[c], offset = plan_.actions[c] + bytes * plan_.slots;
    rows.push_back({offset, bytes});
    lendings_->add_column(arena_->at<std::byte>(offset), bytes, first);
  }
  return rows;
}

std::uint32_t Hub::split(std::vector<std::vector<std::uint32_t>> divisions) {
  lock_.require_no_other_thread();
  for (std::size_t i = 0; i < part_objects_.size(); ++i)
    part_objects_[i].lent.take_back();  // This may run user code, which may change `part_objects_`.
  const std::uint32_t first = slots_.divide(divisions, *lendings_);
  keep_last_actions(numbers_below(plan_.slots));  // The positions of the slots have changed.
  part_objects_.clear();                          // Leases that are still held give their frames back when they end.
  for (std::uint32_t i = 0; i < divisions.size(); ++i) {
    const nb::object ids = vector_of<npy_int64>(slots_.parts().at(first + i).slots(), NPY_INT64);
    PyArray_CLEARFLAGS(as_array(ids), NPY_ARRAY_WRITEABLE);
    part_objects_.push_back({.env_ids = ids});
  }
  return first;
}

void Hub::set_batches(nb::object type, nb::object source, nb::object look, bool obs_is_array) {
  callbacks_.batch_type = std::move(type);
  callbacks_.look = std::move(look);
  frame_taker_.set_source(std::move(source), obs_is_array);
}

std::optional<Refusal> Hub::send(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t number) {
  TimeOfCall now;
  std::vector<std::uint32_t> some;
  const CallerMeter::Call call(caller_meter_);
  return send_to(op, slots, actions, blobs, number, some, now);
}

nb::object Hub::step(nb::handle actions, nb::handle slots, std::uint32_t number) {
  TimeOfCall now;
  std::vector<std::uint32_t> some;
  if (tracing_.is_on()) tracing_.note_step(now.get());
  if (!slots.is_none() && slots_.pending(number) != 0)
    return nb::cast(Refusal{Refusal::Reason::kPending, slots_.busy_slots(number)});
  const CallerMeter::Call call(caller_meter_);
  if (auto refusal = send_to(Op::kStep, slots, actions, nb::none(), number, some, now))
    return nb::cast(std::move(*refusal));
  return receive_from(now, 0, number, some);
}

// `some`: receives the targets if `slots` is not None.
std::optional<Refusal> Hub::send_to(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t number,
                                    std::vector<std::uint32_t>& some, TimeOfCall& now) {
  if (has_part(number)) objects_of_part(number).lent.take_back();
  if (!has_part(number)) return Refusal{Refusal::Reason::kPart};  // user code in `take_back` may have split the pool
  if (!slots.is_none() && !read_targets(slots, number, some)) return Refusal{Refusal::Reason::kTargets};
  Actions::Leaves leaves;
  if (op == Op::kStep) {
    const std::size_t count = slots.is_none() ? slots_.parts().at(number).slots().size() : some.size();
    try {
      leaves = actions_.take_apart(actions, static_cast<std::uint32_t>(count));
    } catch (nb::python_error& error) {
      if (!lock_.turn().is_closing() || !error.matches(PyExc_Exception)) throw;
      // User code has closed the pool. Therefore `HubLock::Guard::end` throws ClosedError.
      return Refusal{Refusal::Reason::kPart};
    }
    if (!has_part(number)) return Refusal{Refusal::Reason::kPart};  // user code in `take_apart` may have split the pool
  }
  nb::object known;
  if (op == Op::kObserve || op == Op::kRepeat) {
    known = known_rows(op, slots.is_none() ? slots_.parts().at(number).slots() : some);
    if (!has_part(number)) return Refusal{Refusal::Reason::kPart};  // a signal handler may have split the pool
    blobs = known;
  }
  Part& part = slots_.parts().at(number);
  const std::vector<std::uint32_t>& targets = slots.is_none() ? part.slots() : some;
  if (auto refusal = slots_.refusal(op, targets)) return refusal;
  actions_.write(leaves, targets, part, slots_.states());
  if (!targets.empty()) dispatch(op, targets, blobs, part, now);
  return std::nullopt;
}

// Reads ids as slots into `targets`. They must be distinct slots of the part and form whole vector envs: groups of
// neighbours, each group together and in order. Returns false for anything else.
bool Hub::read_targets(nb::handle slots, std::uint32_t number, std::vector<std::uint32_t>& targets) const {
  std::vector<std::int64_t> ids;
  if (!read_ints(slots, ids) || ids.size() % plan_.width != 0) return false;
  targets.reserve(ids.size());
  std::vector<bool> seen(plan_.slots);
  for (std::int64_t id : ids) {
    if (static_cast<std::uint64_t>(id) >= plan_.slots) return false;  // also catches negative numbers
    const auto slot = static_cast<std::uint32_t>(id);
    const auto sub_env = static_cast<std::uint32_t>(targets.size() % plan_.width);
    if (seen[slot] || slots_[slot].part != slots_.parts().index(number) || slot % plan_.width != sub_env) return false;
    if (sub_env != 0 && slot != targets.back() + 1) return false;
    seen[slot] = true;
    targets.push_back(slot);
  }
  return true;
}

void Hub::dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part, TimeOfCall& now) {
  caller_meter_.note_sending();
  if (part.rollout() && op == Op::kReset) end_rollout_of(slots_.parts().number_of(targets[0]));
  std::vector<std::uint32_t> theirs;  // empty without a rollout
  if (part.rollout() && op != Op::kReset) theirs = part.send_to_rollout(op, targets, slots_.states());
  const auto elsewhere = theirs.empty()
                             ? targets.size()
                             : static_cast<std::size_t>(std::count(theirs.begin(), theirs.end(), Part::kNoRow));
  const auto in_rollout = static_cast<std::uint32_t>(targets.size() - elsewhere);
  const std::uint32_t first_row = part.send(static_cast<std::uint32_t>(elsewhere), in_rollout) * plan_.slots;
  // One record covers a run of neighbours. But each env gets a record of its own if there are `blobs`, if an episode
  // was cut off, or if the pool has spares.
  const bool in_runs = blobs.is_none() && !slots_.states().any_cut_off() && !slots_.seating().has_spares();
  for (std::size_t first = 0, next; first < targets.size(); first = next) {
    const bool is_there = !theirs.empty() && theirs[first] != Part::kNoRow;
    const std::uint32_t slot = targets[first], position = slots_.states().position_of(slot);
    const std::uint32_t row = is_there ? theirs[first] : first_row + position;
    next = in_runs ? end_of_run(targets, first, &targets == &part.slots(), theirs) : first + plan_.width;
    const auto count = static_cast<std::uint32_t>(next - first);
    slots_.send(slot, count, op, row, part.action_row(row, position));
    send_run(op, slot, count, blobs.is_none() ? nb::none() : nb::object(blobs[first / plan_.width]));
  }
  workers_.publish_all(now);
}

// Returns the index after the last target of the run that starts at target `first`. The slots of a run are neighbours,
// have neighbouring rows, and have one worker. Slot i has env i, because the caller makes no runs if there are spares.
// `ascend`: whether the targets ascend. `theirs`: their rows in a rollout, see `Part::send_to_rollout`.
std::size_t Hub::end_of_run(const std::vector<std::uint32_t>& targets, std::size_t first, bool ascend,
                            const std::vector<std::uint32_t>& theirs) const {
  const std::uint32_t of_worker = slots_.end_of_worker(targets[first]) - targets[first];
  const std::size_t end = std::min<std::size_t>(first + of_worker, targets.size());
  // In frames, neighbours have neighbouring rows, so the last one tells whether those before it are neighbours.
  if (ascend && theirs.empty() && targets[end - 1] - targets[first] == end - 1 - first) return end;
  std::size_t next = first + 1;
  const auto has_next_row = [&theirs](std::size_t i) {
    if (theirs.empty() || theirs[i - 1] == Part::kNoRow) return theirs.empty() || theirs[i] == Part::kNoRow;
    return theirs[i] == theirs[i - 1] + 1;
  };
  while (next < end && targets[next] == targets[next - 1] + 1 && has_next_row(next)) ++next;
  return next;
}

// Sends the command of `count` slots from `first` on as one record, unless the pool itself answers it. The slots are
// already marked as in flight.
void Hub::send_run(Op op, std::uint32_t first, std::uint32_t count, nb::object parts) {
  const std::uint32_t end = slots_.states().any_over() ? first + count : first;
  for (std::uint32_t slot = first; slot < end; slot += plan_.width) {
    if (slots_[slot].episode != Episode::kOver || !slots_.begin_episode(slot, op, !parts.is_none())) continue;
    swap_in_spare(slot);
    parts = nb::none();
  }
  if (op == Op::kRepeat) return slots_.answer_observe(first, parts);  // the next command gets the end of the episode
  if (!parts.is_none()) slots_.keep_command(first, parts);
  if (slots_.states().is_cut_off(first)) {
    // The answer to the command is the end of the episode, unless the command is a reset.
    const std::optional<bool> is_sent = slots_.deliver_end(first, workers_.next_sequence());
    if (is_sent == true) push_again(first);
    if (is_sent) return;
  }
  if (op == Op::kObserve && !parts.is_none()) return slots_.answer_observe(first, parts);
  push_run(slots_.last_op(first), first, count, parts, true);
}

// Makes the longest-waiting spare back the slot. The slot's previous env becomes a spare.
void Hub::swap_in_spare(std::uint32_t slot) {
  const std::uint32_t finished = slots_.swap_in_spare(slot), worker = slots_.worker_of_env(finished);
  // After an env's episode has ended, the worker resets the env in advance without a command. A rebuilt env has not
  // ended an episode, so its reset in advance needs a command, which may wait for the worker's successor.
  if (slots_.last_results().is_fresh(finished) && workers_.state(worker) != WorkerState::kDead)
    push_message(Op::kPrepare, worker, finished, nb::none());
}

// Pushes one record with the command of `count` slots from `first` on. `is_first`: whether it was not sent before.
void Hub::push_run(Op op, std::uint32_t first, std::uint32_t count, nb::handle parts, bool is_first) {
  const std::uint64_t sequence = workers_.next_sequence();
  slots_.set_sequence(first, count, sequence, is_first);
  const Slots::Slot slot = slots_[first];
  push(slots_.worker_of(first), {op, slots_.env_of(first), slot.row, count, sequence, 0, slot.action_row}, parts);
}

// Sends the last command of a slot again.
void Hub::push_again(std::uint32_t slot) {
  push_run(slots_[slot].op, slot, plan_.width, slots_.command_of(slot), false);
  TimeOfCall now;
  workers_.publish(slots_.worker_of(slot), now);
}

std::uint64_t Hub::post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                                nb::handle addressee) {
  if (workers_[worker].outstanding >= plan_.ring_capacity)
    throw nb::value_error("too many messages are waiting for one worker");
  if (!addressees.is_none()) nb::borrow<nb::dict>(addressees)[nb::int_(workers_.last_sequence() + 1)] = addressee;
  return push_message(op, worker, env, parts);
}

std::uint64_t Hub::push_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts) {
  const std::uint64_t sequence = workers_.next_sequence();
  workers_[worker].messages.push_back(sequence);
  if (env != kWholeWorker) slots_.note_message(env, sequence);
  inbox_.await_answer();
  push(worker, {op, env, 0, 1, sequence, 0, 0}, parts);
  TimeOfCall now;
  workers_.publish(worker, now);
  return sequence;
}

void Hub::push(std::uint32_t worker, const Command& command, nb::handle parts) {
  // A dead worker is reported again, because it will not answer this command either.
  if (workers_.state(worker) == WorkerState::kDead) {
    inbox_.add_ended(worker);
    workers_.watch()->wake();
  }
  workers_.push(worker, command, parts);
}

}  // namespace remuda
