#include "pool/hub/hub.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "ipc/blob_parts.hpp"
#include "pool/slots/targets.hpp"

namespace remuda {

namespace {

std::vector<LastResults::Rows> rows_of(const std::vector<Column>& columns) {
  std::vector<LastResults::Rows> rows;
  for (const Column& column : columns) rows.push_back({column.row(0), column.row_bytes()});
  return rows;
}

nb::object read_only_ids(const std::vector<std::uint32_t>& slots) {
  auto count = static_cast<npy_intp>(slots.size());
  nb::object ids = nb::steal(PyArray_SimpleNew(1, &count, NPY_INT64));
  if (!ids.is_valid()) nb::raise_python_error();
  auto* array = reinterpret_cast<PyArrayObject*>(ids.ptr());
  std::copy(slots.begin(), slots.end(), static_cast<npy_int64*>(PyArray_DATA(array)));
  PyArray_CLEARFLAGS(array, NPY_ARRAY_WRITEABLE);
  return ids;
}

// Reads a list, tuple or array of ints; false where it is none. A bool is no int here, and a mask no array of them.
bool read_ints(nb::handle list, std::vector<std::int64_t>& ints) {
  if (PyArray_Check(list.ptr())) {
    auto* array = reinterpret_cast<PyArrayObject*>(list.ptr());
    if (PyArray_NDIM(array) != 1 || !PyArray_ISINTEGER(array)) return false;
    if (PyArray_TYPE(array) == NPY_INT64 && PyArray_ISCARRAY_RO(array)) {
      const auto* data = static_cast<const npy_int64*>(PyArray_DATA(array));
      ints.assign(data, data + PyArray_SIZE(array));
      return true;
    }
  } else if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr())) {
    return false;
  }
  for (nb::handle one : list) {
    if (PyBool_Check(one.ptr()) || !PyIndex_Check(one.ptr())) return false;
    const nb::object index = nb::steal(PyNumber_Index(one.ptr()));
    int overflow = 0;
    if (index.is_valid()) ints.push_back(PyLong_AsLongLongAndOverflow(index.ptr(), &overflow));
    if (overflow != 0) return false;
    if (index.is_valid()) continue;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) nb::raise_python_error();
    PyErr_Clear();
    return false;
  }
  return true;
}

}  // namespace

Hub::Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
         std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> computed,
         std::vector<ActionColumn> actions, nb::object action_nest, nb::object receive, nb::object send,
         std::int64_t spin_ns, std::uint32_t max_running, bool one_sleeps, bool spins_heedlessly)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      lendings_(Lendings::make(arena_, plan_.slots)),
      autoreset_(autoreset),
      progress_(arena_->at<Progress>(plan_.progress)),
      bell_(arena_->at<Bell>(Plan::kPoolBell)),
      words_(arena_->at<Words>(Plan::kWords)),
      cores_(arena_->at<SharedCores>(Plan::kCores)),
      seating_(plan_.slots, plan_.envs),
      slots_(plan_.slots),
      objects_(plan_.slots),
      obstacles_(std::make_shared<Obstacles>(plan_.slots, plan_.envs)),
      last_results_(plan_, rows_of(columns), rows_of(final_columns), rows_of(computed)),
      resolution_(slots_, seating_, last_results_, parts_, plan_.width),
      last_parts_(plan_.envs),
      frame_taker_(arena_, plan_.slots, std::move(columns), std::move(final_columns), std::move(computed)),
      actions_(std::move(actions), action_nest),
      turns_(plan_.workers, max_running),
      watch_(plan_.workers),
      transfers_(plan_.workers),
      spin_policy_(*cores_, SpinPolicy::kCaller, Nanoseconds(spin_ns), spins_heedlessly),
      caller_meter_(*arena_->at<CallerFigures>(plan_.caller_figures)),
      receive_(std::move(receive)),
      send_(std::move(send)),
      batch_type_(nb::borrow(nb::type<Batch>())) {
  if (one_sleeps) cores_->sleeper.store(plan_.workers, std::memory_order_relaxed);  // until one says it is another
  for (std::uint32_t w = 0; w < plan_.workers; ++w) {
    ports_.emplace_back(*arena_, plan_, w, static_cast<std::uint32_t>(workers_.size()), envs_of_worker[w]);
    workers_.insert(workers_.end(), envs_of_worker[w], w);
  }
  for (const auto* columns : {&last_results_.columns(), &last_results_.final_columns(), &last_results_.computed()})
    for (const LastResults::Rows& column : *columns) lendings_->add_column(column.at, column.bytes);
  std::vector<RolloutStore::Rows> rows;
  for (std::size_t c = 0; c < plan_.columns.size(); ++c)
    if (c != kInfo)
      rows.push_back({plan_.columns[c] + plan_.column_bytes[c] * plan_.first_rollout_row(), plan_.column_bytes[c]});
  for (std::size_t c = 0; c < plan_.actions.size(); ++c) {
    const std::uint64_t first = plan_.actions[c] + plan_.action_bytes[c] * plan_.slots;
    rows.push_back({first, plan_.action_bytes[c]});
    lendings_->add_action_column(arena_->at<std::byte>(first), plan_.action_bytes[c]);
  }
  lendings_->set_first_rollout_row(plan_.first_rollout_row());
  rollout_store_ = std::make_shared<RolloutStore>(arena_, plan_.rollout_rows, std::move(rows));
  std::vector<std::uint32_t> all(plan_.slots);
  std::iota(all.begin(), all.end(), 0);
  split({std::move(all)});
}

std::uint32_t Hub::split(std::vector<std::vector<std::uint32_t>> divisions) {
  for (const Part& part : parts_)
    if (part.pending() != 0) throw std::logic_error("a pool is split while nothing is pending");
  for (Part& part : parts_) part.end_rollout();
  for (const Part& part : parts_) books_before_.push_back(part.book());
  std::erase_if(books_before_, [](const auto& book) { return book->all_back(); });
  first_part_ += static_cast<std::uint32_t>(parts_.size());
  parts_.clear();
  rollouts_.clear();
  rollouts_.resize(divisions.size());
  env_ids_.clear();
  std::uint32_t position = 0;
  for (auto& slots : divisions) {
    std::sort(slots.begin(), slots.end());
    const std::uint32_t first = position;
    env_ids_.push_back(read_only_ids(slots));
    for (std::uint32_t slot : slots) slots_.place(slot, static_cast<std::uint32_t>(parts_.size()), position++);
    auto book = std::make_shared<FrameBook>(plan_.frames - 1, books_before_);
    lendings_->add_book(book, first, position - first);
    parts_.emplace_back(std::move(slots), first, plan_.slots, std::move(book), plan_.frames);
  }
  return first_part_;
}

void Hub::set_batches(nb::object type, nb::object source, nb::object look, bool obs_is_array) {
  batch_type_ = std::move(type);
  frame_taker_.set_source(std::move(source), obs_is_array);
  look_ = std::move(look);
}

// -- what is sent ------------------------------------------------------------------------------------------

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
  if (!slots.is_none() && pending(number) != 0) return nb::cast(Refusal::kPending);
  const CallerMeter::Call call(caller_meter_);
  if (const auto refusal = send_to(Op::kStep, slots, actions, nb::none(), number, some, now)) return nb::cast(*refusal);
  return receive_from(now, 0, number, some);
}

// `some`: becomes those that are named.
std::optional<Refusal> Hub::send_to(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t number,
                                    std::vector<std::uint32_t>& some, TimeOfCall& now) {
  if (!has_part(number)) return Refusal::kPart;
  if (!slots.is_none() && !read_targets(slots, number, some)) return Refusal::kTargets;
  std::optional<Actions::Leaves> leaves;
  if (op == Op::kStep) {
    const std::size_t count = slots.is_none() ? part_at(number).slots().size() : some.size();
    leaves = actions_.take_apart(actions, static_cast<std::uint32_t>(count));
    if (!leaves) return Refusal::kActions;
    if (!has_part(number)) return Refusal::kPart;  // that ran code of the caller's
  }
  Part& part = part_at(number);
  const std::vector<std::uint32_t>& targets = slots.is_none() ? part.slots() : some;
  if (const auto refusal = obstacle(op, targets)) return refusal;
  if (leaves) actions_.write(*leaves, targets, part, slots_);
  if (!targets.empty()) dispatch(op, targets, blobs, part, now);
  return std::nullopt;
}

bool Hub::read_targets(nb::handle slots, std::uint32_t number, std::vector<std::uint32_t>& targets) const {
  std::vector<std::int64_t> ids;
  if (!read_ints(slots, ids)) return false;
  auto read = as_targets(ids, slots_, number - first_part_, plan_.width);
  if (read) targets = std::move(*read);
  return read.has_value();
}

// What keeps these slots, distinct ones, from being sent the op.
std::optional<Refusal> Hub::obstacle(Op op, const std::vector<std::uint32_t>& targets) const {
  auto any = [&](auto is_so) { return std::any_of(targets.begin(), targets.end(), is_so); };
  if (op != Op::kReset && obstacles_->any_must_reset() && any([&](auto slot) { return obstacles_->must_reset(slot); }))
    return Refusal::kMustReset;
  if (obstacles_->any_lost() && any([&](auto slot) { return obstacles_->is_lost(env_of(slot)); }))
    return Refusal::kLost;
  if (any([&](auto slot) { return slots_[slot].state != SlotState::kIdle; })) return Refusal::kInFlight;
  return std::nullopt;
}

void Hub::dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part, TimeOfCall& now) {
  caller_meter_.note_sending();
  const std::vector<std::uint32_t> theirs =
      part.rollout() ? rows_in_rollout(op, targets, part) : std::vector<std::uint32_t>();  // rows in it; else none
  const auto elsewhere = theirs.empty()
                             ? targets.size()
                             : static_cast<std::size_t>(std::count(theirs.begin(), theirs.end(), Part::kNoRow));
  const std::uint32_t first_row = part.send(static_cast<std::uint32_t>(elsewhere)) * plan_.slots;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool is_there = !theirs.empty() && theirs[i] != Part::kNoRow;
    slots_.send(targets[i], op, is_there ? theirs[i] : first_row + slots_[targets[i]].position);
    if (op == Op::kReset) obstacles_->note_reset(targets[i]);
  }
  // One record tells of neighbours, unless each has something of its own, or episodes begin out of turn.
  const bool in_runs = blobs.is_none() && !slots_.any_cut_off() && !seating_.has_spares();
  for (std::size_t first = 0, next; first < targets.size(); first = next) {
    next = in_runs ? end_of_run(targets, first) : first + plan_.width;
    const nb::object parts = blobs.is_none() ? nb::none() : nb::object(blobs[first / plan_.width]);
    send_run(op, targets[first], static_cast<std::uint32_t>(next - first), parts);
  }
  for (std::uint32_t w = 0; w < ports_.size(); ++w) publish(w, now);
  raise_interrupt();
}

// Of neighbours that their own envs back, in one worker, and whose results go to neighbouring rows.
std::size_t Hub::end_of_run(const std::vector<std::uint32_t>& targets, std::size_t first) const {
  std::size_t next = first + 1;
  for (; next < targets.size(); ++next) {
    const std::uint32_t slot = targets[next], last = targets[next - 1];
    if (slot != last + 1 || workers_[slot] != workers_[last] || slots_[slot].row != slots_[last].row + 1) break;
  }
  return next;
}

// The command for slots in flight: one record.
void Hub::send_run(Op op, std::uint32_t first, std::uint32_t count, nb::object parts) {
  for (std::uint32_t slot = first; slot < first + count; slot += plan_.width) {
    if (slots_[slot].episode != Episode::kOver || !begins_episode(slot, op, parts)) continue;
    slots_.set_op(slot, Op::kReset);
    parts = nb::none();
  }
  if (!parts.is_none()) objects_[first].command = parts;
  if (!deliver_end(first) && !answer_here(first, op, parts)) push_run(slots_[first].op, first, count, parts);
}

// The slot's last episode is over: whether this command is to be a plain reset, and a fresh env's.
bool Hub::begins_episode(std::uint32_t slot, Op op, nb::handle parts) {
  if (op == Op::kObserve) return false;
  slots_.go_on(slot);
  // With a seed or options it is its own env that resets.
  const bool plain = op == Op::kStep ? autoreset_ == Autoreset::kNextStep : parts.is_none();
  if (!seating_.has_spares() || !plain) return false;
  swap_in_spare(slot);
  return true;
}

// The env of a slot changes places with the spare that has waited longest.
void Hub::swap_in_spare(std::uint32_t slot) {
  const std::uint32_t finished = seating_.swap_in_spare(slot), worker = workers_[finished];
  // After an episode its worker resets it unasked; one that was built anew knows of none.
  if (last_results_.is_fresh(finished) && ports_[worker].is_published())
    push_message(Op::kPrepare, worker, finished, nb::none());
}

// One record for `count` slots from this one on.
void Hub::push_run(Op op, std::uint32_t first, std::uint32_t count, nb::handle parts) {
  ++sequence_;
  for (std::uint32_t i = 0; i < count; ++i) slots_.set_sequence(first + i, sequence_);
  const Slots::Slot& slot = slots_[first];
  push(worker_of(first), {op, env_of(first), slot.row, count, sequence_, 0, action_row(first)}, parts);
}

// The command that a slot was sent last, once more.
void Hub::push_again(std::uint32_t slot) {
  push_run(slots_[slot].op, slot, plan_.width, none_or(objects_[slot].command));
  TimeOfCall now;
  publish(worker_of(slot), now);
}

std::uint64_t Hub::post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                                nb::handle addressee) {
  if (ports_[worker].outstanding >= plan_.ring_capacity)
    throw nb::value_error("too many messages are waiting for one worker");
  if (!addressees.is_none()) nb::borrow<nb::dict>(addressees)[nb::int_(sequence_ + 1)] = addressee;
  const std::uint64_t sequence = push_message(op, worker, env, parts);
  raise_interrupt();
  return sequence;
}

std::uint64_t Hub::push_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts) {
  const std::uint64_t sequence = ++sequence_;
  ports_[worker].messages.push_back(sequence);
  ++awaited_;
  push(worker, {op, env, 0, 1, sequence, 0, 0}, parts);
  TimeOfCall now;
  publish(worker, now);
  return sequence;
}

bool Hub::has_room(std::uint32_t worker) const {
  // The envs' own commands always find room, and for each a message of ours; others take what is left.
  return ports_[worker].outstanding + ports_[worker].envs < plan_.ring_capacity;
}

void Hub::push(std::uint32_t worker, const Command& command, nb::handle parts) {
  Port& port = ports_[worker];
  if (port.state() == PortState::kDead && std::find(dead_.begin(), dead_.end(), worker) == dead_.end())
    dead_.push_back(worker);  // once more: this will not be answered either
  Command whole = command;
  if (!parts.is_none()) whole.flags = write_parts(port.blobs_out, parts) ? kHasBlob : kOnSocket;
  const bool on_socket = whole.flags == kOnSocket;
  port.commands.push(whole);
  port.outstanding += command.count;
  port.has_unpublished = true;
  if (!on_socket) return;
  TimeOfCall now;
  publish(worker, now, true);  // first the record, and out of turn: it makes the worker read the socket
  try {
    transfers_.note(worker, Way::kWrite, send_(worker, parts).is(nb::bool_(true)));
  } catch (nb::python_error& error) {
    interrupt_.emplace(error);  // what was begun is done first: the books must balance
  }
}

void Hub::publish(std::uint32_t worker, TimeOfCall& now, bool at_once) {
  Port& port = ports_[worker];
  if (!port.has_unpublished || !port.is_published()) return;
  const bool had_turn = turns_.has(worker);
  if (at_once)
    turns_.take(worker);
  else if (!turns_.ask(worker))
    return;
  if (!had_turn && deadlines_.has_any()) port.heard = now.get();
  port.has_unpublished = false;
  port.commands.publish();
  now.note(notify(*port.bell));
}

// The worker has nothing left to do: whoever has waited longest is next.
void Hub::finish_turn(std::uint32_t worker) {
  if (!turns_.has(worker)) return;
  turns_.end(worker);
  TimeOfCall now;
  while (const auto next = turns_.next()) publish(*next, now);
}

void Hub::raise_interrupt() {
  if (!interrupt_) return;
  nb::python_error interrupt(*interrupt_);
  interrupt_.reset();
  throw interrupt;
}

// What is to be read waits until its record is looked at.
void Hub::write_on() {
  if (!transfers_.any_writing()) return;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    if (!transfers_.is_partial(w, Way::kWrite) || !transfers_.can_move(w, Way::kWrite)) continue;
    transfers_.note(w, Way::kWrite, send_(w, nb::none()).is(nb::bool_(true)));
  }
}

}  // namespace remuda
