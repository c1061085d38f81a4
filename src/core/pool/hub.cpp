#include "pool/hub.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "ipc/blob_parts.hpp"

namespace remuda {

Hub::Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
         std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> actions,
         nb::object receive, nb::object send, std::int64_t spin_ns, std::uint32_t max_running, std::uint32_t width)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      lendings_(Lendings::make(arena_, plan_.slots)),
      autoreset_(autoreset),
      slots_(plan_.slots),
      seating_(plan_.slots, plan_.envs),
      turns_(plan_.workers, max_running),
      watch_(plan_.workers),
      transfers_(plan_.workers),
      columns_(std::move(columns)),
      final_columns_(std::move(final_columns)),
      actions_(std::move(actions)),
      receive_(std::move(receive)),
      send_(std::move(send)),
      progress_(arena_->at<Progress>(plan_.progress)),
      bell_(arena_->at<Bell>(Plan::kPoolBell)),
      words_(arena_->at<Words>(Plan::kWords)),
      spin_budget_(Nanoseconds(spin_ns)),
      width_(width) {
  for (std::uint32_t w = 0; w < plan_.workers; ++w) {
    Port& port = ports_.emplace_back(make_port(w));
    port.first_env = static_cast<std::uint32_t>(envs_.size());
    port.envs = envs_of_worker[w];
    envs_.insert(envs_.end(), port.envs, Env{w});
  }
  for (const auto* columns : {&columns_, &final_columns_})
    for (const Column& column : *columns) lendings_->add_column(column.row(0), column.row_bytes());
  std::vector<std::uint32_t> all(plan_.slots);
  std::iota(all.begin(), all.end(), 0);
  split({std::move(all)});
}

void Hub::split(std::vector<std::vector<std::uint32_t>> divisions) {
  for (std::uint32_t part = 0; part < parts_.size(); ++part)
    if (pending(part) != 0) throw std::logic_error("a pool is split while nothing is pending");
  for (Part& part : parts_) books_before_.push_back(std::move(part.book));
  std::erase_if(books_before_, [](const auto& book) { return book->all_back(); });
  parts_.clear();
  std::uint32_t position = 0;
  for (auto& slots : divisions) {
    std::sort(slots.begin(), slots.end());
    for (std::uint32_t slot : slots) {
      slots_[slot].position = position++;
      slots_[slot].part = static_cast<std::uint32_t>(parts_.size());
    }
    auto book = std::make_shared<FrameBook>(plan_.frames - 1, books_before_);
    const auto count = static_cast<std::uint32_t>(slots.size());
    lendings_->add_book(book, position - count, count);
    parts_.push_back({std::move(slots), std::move(book), std::vector<std::uint32_t>(plan_.frames)});
  }
}

Hub::Port Hub::make_port(std::uint32_t w) const {
  Port port;
  port.bell = arena_->at<Bell>(plan_.bell(w));
  port.meter = arena_->at<Meter>(plan_.meter(w));
  port.commands = {arena_->at<RingHeader>(plan_.commands(w)), plan_.ring_capacity};
  port.results = {arena_->at<RingHeader>(plan_.results(w)), plan_.ring_capacity};
  port.blobs_out = {arena_->at<BlobHeader>(plan_.blobs_in(w)), plan_.blob_bytes};
  port.blobs_in = {arena_->at<BlobHeader>(plan_.blobs_out(w)), plan_.blob_bytes};
  return port;
}

// -- out ---------------------------------------------------------------------------------------------

std::vector<std::uint32_t> Hub::targets(nb::handle slots, const Part& part) const {
  auto targets = slots.is_none() ? part.slots : nb::cast<std::vector<std::uint32_t>>(slots);
  for (std::uint32_t slot : targets)
    if (slots_[slot].state != SlotState::kIdle)
      throw nb::value_error(("env " + std::to_string(slot) + " is in flight").c_str());
  return targets;
}

void Hub::send(Op op, nb::handle slots, nb::list actions, nb::handle blobs, std::uint32_t part) {
  std::vector<std::uint32_t> targets = this->targets(slots, parts_.at(part));
  if (op == Op::kStep) copy_actions(targets, actions, parts_[part]);
  dispatch(op, targets, blobs, parts_[part]);
}

bool Hub::send_steps(nb::handle actions, nb::handle slots, std::uint32_t index) {
  Part& part = parts_.at(index);
  if (actions_.size() != 1 || (slots.is_none() && pending(index) != 0)) return false;
  std::vector<std::uint32_t> some;
  if (!slots.is_none()) some = idle_slots(slots, index);
  const std::vector<std::uint32_t>& targets = slots.is_none() ? part.slots : some;
  if (targets.empty() || !actions_[0].fits(actions, static_cast<std::uint32_t>(targets.size()))) return false;
  if (choices_ && first_outside(actions, choices_->first, choices_->second) >= 0) return false;
  copy_column(actions_[0], PyArray_DATA(reinterpret_cast<PyArrayObject*>(actions.ptr())), targets, part);
  dispatch(Op::kStep, targets, nb::none(), part);
  return true;
}

// Those in an array of int64; none where it is none, or where any of them is not to be sent anything.
std::vector<std::uint32_t> Hub::idle_slots(nb::handle slots, std::uint32_t part) const {
  auto* array = reinterpret_cast<PyArrayObject*>(slots.ptr());
  if (!PyArray_Check(slots.ptr()) || PyArray_NDIM(array) != 1 || PyArray_TYPE(array) != NPY_INT64 ||
      !PyArray_ISCARRAY_RO(array))
    return {};
  const auto* ids = static_cast<const npy_int64*>(PyArray_DATA(array));
  std::vector<std::uint32_t> idle;
  std::vector<bool> seen(slots_.size());
  for (npy_intp i = 0; i < PyArray_SIZE(array); ++i) {
    const auto slot = static_cast<std::uint64_t>(ids[i]);
    if (slot >= slots_.size() || seen[slot] || slots_[slot].part != part || slots_[slot].state != SlotState::kIdle)
      return {};
    const auto sub_env = static_cast<std::uint64_t>(i) % width_;
    if (slot % width_ != sub_env || (sub_env != 0 && slot != idle.back() + 1))
      return {};  // of vector envs all, in order
    seen[slot] = true;
    idle.push_back(static_cast<std::uint32_t>(slot));
  }
  return idle.size() % width_ == 0 ? idle : std::vector<std::uint32_t>{};
}

void Hub::dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part) {
  const std::uint32_t frame = open_frame(part, targets.size());
  part.rows_out[frame] += static_cast<std::uint32_t>(targets.size());
  part.in_flight += static_cast<std::uint32_t>(targets.size());
  std::size_t first = 0;  // of the run being gathered
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Slot& slot = slots_[targets[i]];
    nb::object parts = blobs.is_none() ? nb::none() : nb::object(blobs[i]);
    slot.state = SlotState::kInFlight;
    slot.op = op;
    slot.row = frame * plan_.slots + slot.position;
    if (slot.over && begins_episode(targets[i], op, parts)) {
      slot.op = Op::kReset;
      parts = nb::none();
    }
    if (!parts.is_none()) slot.parts = parts;
    if (i + 1 < targets.size() && blobs.is_none() && extends_run(targets[i], targets[i + 1])) continue;
    if (!deliver_deferred(targets[i], slot.op) && !answer_here(targets[i], slot.op, parts))
      push_run(slot.op, targets[first], static_cast<std::uint32_t>(i + 1 - first), parts);
    first = i + 1;
  }
  for (std::uint32_t w = 0; w < ports_.size(); ++w) publish(w);
  raise_interrupt();
}

// Whether one record can tell of both. Where episodes begin out of turn, none does.
bool Hub::extends_run(std::uint32_t slot, std::uint32_t next) const {
  return next == slot + 1 && env_of(next) == env_of(slot) + 1 && slots_[next].position == slots_[slot].position + 1 &&
         env_behind(next).worker == env_behind(slot).worker && deferred_ == 0 && !seating_.has_spares();
}

// The slot's last episode is over: whether this command is to be a plain reset, and a fresh env's.
bool Hub::begins_episode(std::uint32_t slot, Op op, nb::handle parts) {
  if (op == Op::kObserve) return false;
  slots_[slot].over = false;
  // With a seed or options it is its own env that resets.
  const bool plain = op == Op::kStep ? autoreset_ == Autoreset::kNextStep : parts.is_none();
  if (!seating_.has_spares() || !plain) return false;
  swap_in_spare(slot);
  return true;
}

// The env of a slot changes places with the spare that has waited longest.
void Hub::swap_in_spare(std::uint32_t slot) {
  const std::uint32_t finished = seating_.swap_in_spare(slot);
  // After an episode its worker resets it unasked; one that was built anew knows of none.
  const Port& port = ports_[envs_[finished].worker];
  if (envs_[finished].fresh && !port.dead && !port.absent)
    post_message(Op::kPrepare, envs_[finished].worker, finished, nb::none(), nb::none(), nb::none());
}

// The first command that may still end an episode: whoever was sent it may come to need a spare.
std::uint64_t Hub::first_open() {
  std::uint64_t open = ~std::uint64_t{0};
  for (const Slot& slot : slots_) {
    const bool has_failed = slot.state == SlotState::kOrphaned;  // what becomes of it is decided next
    if (slot.op != Op::kStep || !(has_failed || slot.state == SlotState::kInFlight)) continue;
    open = std::min(open, slot.sequence);
    if (has_failed) watch_.raise_news();
  }
  return open;
}

// Gives a fresh env to each slot that ended an episode, or was cut off, and is to begin another in the same step.
void Hub::resolve_due() {
  if (!seating_.anyone_asks()) return;
  for (std::uint32_t slot : seating_.take_due(first_open())) {
    slots_[slot].state = SlotState::kOrphaned;
    swap_in_spare(slot);
    reset_into_row(slot, slots_[slot].terminal, true);
    watch_.raise_news();  // workers that are the caller himself must be given the chance to run
  }
}

// A command to all slots of a part fills a frame that can be leased; any other fills rows of the scratch frame,
// where a slot's row is free because a slot has one command at a time.
std::uint32_t Hub::open_frame(Part& part, std::size_t count) {
  return count == part.slots.size() && part.book->any_free() ? part.book->take() + 1 : 0;
}

void Hub::copy_actions(const std::vector<std::uint32_t>& slots, nb::list actions, const Part& part) {
  if (nb::len(actions) != actions_.size()) throw nb::value_error("one array per action column is needed");
  for (std::size_t c = 0; c < actions_.size(); ++c) {
    nb::handle array = actions[c];
    auto* from = reinterpret_cast<PyArrayObject*>(array.ptr());
    const std::size_t bytes = actions_[c].row_bytes();
    if (!PyArray_Check(array.ptr()) || !PyArray_IS_C_CONTIGUOUS(from) ||
        static_cast<std::size_t>(PyArray_NBYTES(from)) != bytes * slots.size())
      throw nb::value_error("an array of actions does not fit its column");
    copy_column(actions_[c], PyArray_DATA(from), slots, part);
  }
}

void Hub::copy_column(const Column& column, const void* data, const std::vector<std::uint32_t>& slots,
                      const Part& part) {
  const auto* from = static_cast<const std::byte*>(data);
  const std::size_t bytes = column.row_bytes();
  if (slots == part.slots) {
    std::memcpy(column.row(slots_[slots[0]].position), from, bytes * slots.size());
  } else {
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::memcpy(column.row(slots_[slots[i]].position), from + i * bytes, bytes);
  }
}

// One record for `count` slots from this one on.
void Hub::push_run(Op op, std::uint32_t first, std::uint32_t count, nb::handle parts) {
  Slot& slot = slots_[first];
  ++sequence_;
  for (std::uint32_t i = 0; i < count; ++i) slots_[first + i].sequence = sequence_;
  push(env_behind(first).worker, {op, env_of(first), slot.row, count, sequence_, 0, slot.position}, parts);
}

void Hub::push(std::uint32_t worker, const Command& command, nb::handle parts) {
  Port& port = ports_[worker];
  if (port.dead && std::find(newly_dead_.begin(), newly_dead_.end(), worker) == newly_dead_.end())
    newly_dead_.push_back(worker);  // once more: this will not be answered either
  Command whole = command;
  if (!parts.is_none()) whole.flags = write_parts(port.blobs_out, parts) ? kHasBlob : kOnSocket;
  const bool on_socket = whole.flags == kOnSocket;
  port.commands.push(whole);
  port.outstanding += command.count;
  port.pushed = true;
  if (!on_socket) return;
  publish(worker, true);  // first the record, and out of turn: it makes the worker read the socket
  try {
    transfers_.note(worker, Way::kWrite, send_(worker, parts).is(nb::bool_(true)));
  } catch (nb::python_error& error) {
    interrupt_.emplace(error);  // what was begun is done first: the books must balance
  }
}

void Hub::raise_interrupt() {
  if (!interrupt_) return;
  nb::python_error interrupt(*interrupt_);
  interrupt_.reset();
  throw interrupt;
}

void Hub::publish(std::uint32_t worker, bool at_once) {
  Port& port = ports_[worker];
  if (!port.pushed || port.dead || port.absent) return;
  const bool had_turn = turns_.has(worker);
  if (at_once)
    turns_.take(worker);
  else if (!turns_.ask(worker))
    return;
  if (!had_turn && deadlines_.has_any()) port.heard = Clock::now();
  port.pushed = false;
  port.commands.publish();
  notify(*port.bell);
}

// The worker has nothing left to do: whoever has waited longest is next.
void Hub::finish_turn(std::uint32_t worker) {
  if (!turns_.has(worker)) return;
  turns_.end(worker);
  while (const auto next = turns_.next()) publish(*next);
}

bool Hub::has_room(std::uint32_t worker) const {
  // The envs' own commands always find room, and for each a message of ours; others take what is left.
  return ports_[worker].outstanding + ports_[worker].envs < plan_.ring_capacity;
}

std::uint64_t Hub::post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                                nb::handle addressee) {
  if (ports_[worker].outstanding >= plan_.ring_capacity)
    throw nb::value_error("too many messages are waiting for one worker");
  std::uint64_t sequence = ++sequence_;
  if (!addressees.is_none()) nb::borrow<nb::dict>(addressees)[nb::int_(sequence)] = addressee;
  ports_[worker].messages.push_back(sequence);
  ++awaited_;
  push(worker, {op, env, 0, 1, sequence, 0, 0}, parts);
  publish(worker);
  raise_interrupt();
  return sequence;
}

// -- in ----------------------------------------------------------------------------------------------

bool Hub::wait(std::uint32_t wanted, std::int64_t timeout_ns, std::uint32_t index) {
  const Part& part = parts_.at(index);
  const auto start = Clock::now();
  const auto deadline = start + Nanoseconds(timeout_ns);
  clock_.look(start, RunningClock::kUnwatched);
  write_on();                             // first: whoever waits for it is not late
  if (watch_.is_due(start)) poll(start);  // also where the others' results keep coming in time
  for (auto now = start;;) {              // of the last look at the clock, of which there is one a turn
    // Read before the rings: what is published after we looked at them rings past this count.
    std::uint32_t heard = bell_->notified.load(std::memory_order_acquire);
    write_on();
    drain();
    if (done(part) >= wanted) return true;
    if (attention()) return false;
    if (timeout_ns >= 0 && now >= deadline) return false;
    Nanoseconds limit = watch_.longest_sleep(now);
    if (timeout_ns >= 0) limit = std::min<Nanoseconds>(limit, deadline - now);
    // An answer to a message is wanted as soon as it comes, and so is the end of a turn, or of an episode, that
    // somebody waits for; results only when there are enough.
    const bool each = awaited_ != 0 || turns_.any_waiting() || seating_.anyone_asks();
    std::uint32_t needed = each ? 1 : std::min(wanted - done(part), std::max(part.in_flight, 1U));
    const auto before = now;
    bool has_slept;
    {
      nb::gil_scoped_release release;
      has_slept = sleep(heard + needed, limit, now);
    }
    waited_ns_ += static_cast<std::uint64_t>(Nanoseconds(now - before).count());
    clock_.look(now, RunningClock::kStall);
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if ((has_slept || watch_.is_due(now)) && !reached(*bell_, heard + needed)) poll(now);
  }
}

void Hub::drain() {
  Result result;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    while (!ports_[w].corrupt && ports_[w].results.front(result)) {
      if (!accept(w, result)) break;  // may also be interrupted in it: then we start from here again
      ports_[w].results.consume();
    }
  }
  resolve_due();
}

// False when some of the message is still to come, and the result is to be looked at again.
bool Hub::accept(std::uint32_t worker, const Result& result) {
  Port& port = ports_[worker];
  nb::object parts;
  if (transfers_.is_partial(worker, Way::kRead) && !transfers_.can_move(worker, Way::kRead)) return false;
  try {
    if (!is_sound(port, result)) throw std::length_error("a result that answers nothing");
    if (result.flags & kHasBlob) parts = read_parts(port.blobs_in);
  } catch (const std::length_error&) {
    mark_corrupt(worker);
    return true;
  }
  if (result.flags & kOnSocket) {
    nb::object message = receive_(worker);
    const bool is_partial = message.is(nb::bool_(true));
    transfers_.note(worker, Way::kRead, is_partial);
    if (is_partial) return false;
    if (message.is_none()) return true;  // it died while it wrote: the result never came
    if (message.is(nb::bool_(false))) {
      mark_corrupt(worker);
      return true;
    }
    parts = message[0];
    message[1]();  // only now, that no interrupt can come any more until the record is taken too
  }
  port.heard = Clock::time_point(Nanoseconds(result.end_ns));
  port.last_end_ns = result.end_ns;
  port.outstanding -= result.count;
  if (port.outstanding == 0) finish_turn(worker);
  if (result.flags & kIsMessage) {
    std::erase(port.messages, result.sequence);
    --awaited_;
    const auto env = result.env == kWholeWorker ? std::nullopt : std::optional(result.env);
    tell({worker, env, result.sequence, result.flags, std::move(parts)});
  } else if (is_whole(width_, result)) {
    accept_rows(worker, result, std::move(parts));
  } else {
    hold(worker, result, std::move(parts));
  }
  return true;
}

// The sub-envs of a vector env are done together: when their worker dies in between, none is.
void Hub::hold(std::uint32_t worker, const Result& result, nb::object parts) {
  Port& port = ports_[worker];
  port.held.emplace_back(result, std::move(parts));
  port.held_sub_envs += result.count;
  if (port.held_sub_envs < width_) return;
  auto held = std::exchange(port.held, {});
  port.held_sub_envs = 0;
  for (auto& [one, its_parts] : held) accept_rows(worker, one, std::move(its_parts));
}

void Hub::accept_rows(std::uint32_t worker, const Result& result, nb::object parts) {
  const std::uint32_t first = seating_.slot_of(result.env);
  const bool failed = result.flags & kIsFailure, swaps = result.flags & kHasSpares;
  // In same-step autoreset the result that asks for another env, or for its renewal, is not whole: that one's reset
  // belongs to it.
  const bool is_whole = !failed && !(result.flags & kUndone) &&
                        !((result.flags & kHasFinal) && (result.flags & (kRenewalDue | kHasSpares)));
  if (is_whole) {
    finish_rows(first, result, parts);
  } else if (swaps) {
    await_spare(first, parts);
  } else {
    slots_[first].state = SlotState::kOrphaned;
  }
  if (failed || (result.flags & kRenewalDue)) tell({worker, first, result.sequence, result.flags, std::move(parts)});
}

void Hub::finish_rows(std::uint32_t first, const Result& result, nb::object parts) {
  Part& part = part_of(first);
  for (std::uint32_t i = 0; i < result.count; ++i) {
    slots_[first + i].state = SlotState::kReady;
    if (slots_[first + i].op == Op::kObserve) continue;  // nothing new
    ++env_behind(first + i).results;
    env_behind(first + i).fresh = false;
  }
  part.in_flight -= result.count;
  part.ready_slots += result.count;
  Slot& slot = slots_[first];
  if (plan_.keeps_last) env_behind(first).last_parts = parts;
  slot.parts.reset();
  part.ready.push_back(
      {first, result.row, result.count, result.flags & ~kRenewalDue, std::move(parts), std::move(slot.terminal)});
  slot.terminal.reset();
}

// -- messages ----------------------------------------------------------------------------------------

void Hub::tell(Message message) {
  ++(message.is_fault() ? failed_ : answers_);
  if (message.is_fault()) ++part_of(*message.slot).failed;
  messages_.push_back(std::move(message));
}

nb::object Hub::first_message() const {
  if (messages_.empty()) return nb::none();
  const Message& first = messages_.front();
  return nb::make_tuple(first.worker, first.slot ? nb::object(nb::int_(*first.slot)) : nb::none(), first.sequence,
                        first.flags, none_or(first.parts));
}

void Hub::remove_message() {
  const Message& first = messages_.front();
  --(first.is_fault() ? failed_ : answers_);
  if (first.is_fault()) --part_of(*first.slot).failed;
  messages_.pop_front();
}

}  // namespace remuda
