#include "hub.hpp"

#include <algorithm>
#include <cstring>
#include <nanobind/stl/vector.h>

#include <string>

#include "blob_parts.hpp"
#include "platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#endif

namespace remuda {

namespace {

constexpr std::uint32_t kEverything = 0xffffffff;
constexpr std::size_t kFirstOfBatch = 4;  // of `columns_`: the first leaf of the observation
constexpr Nanoseconds kGlance = std::chrono::milliseconds(10);  // the bound on noticing what does not ring
constexpr std::size_t kWorthReleasing = 1 << 16;  // bytes to copy that are worth releasing the GIL for

nb::object none_or(nb::object object) { return object.is_valid() ? object : nb::object(nb::none()); }

// Copies the rows of one column, in the order given, into a new array.
nb::object gather(const Column& column, const std::vector<std::uint32_t>& rows) {
  nb::object array = column.empty(static_cast<std::uint32_t>(rows.size()));
  auto* to = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
  auto copy = [&] {
    for (std::uint32_t row : rows) {
      std::memcpy(to, column.row(row), column.row_bytes());
      to += column.row_bytes();
    }
  };
  if (column.row_bytes() * rows.size() < kWorthReleasing) {
    copy();
  } else {
    nb::gil_scoped_release release;
    copy();
  }
  return array;
}

}  // namespace

Hub::Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> slots_of_worker,
         std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> actions,
         nb::object receive, nb::object send, std::int64_t spin_ns, std::uint32_t max_running)
    : arena_(std::move(arena)),
      plan_(std::move(plan)),
      book_(std::make_shared<FrameBook>(plan_.frames - 1)),
      rows_out_(plan_.frames),
      columns_(std::move(columns)),
      final_columns_(std::move(final_columns)),
      actions_(std::move(actions)),
      receive_(std::move(receive)),
      send_(std::move(send)),
      progress_(arena_->at<Progress>(plan_.progress)),
      bell_(arena_->at<Bell>(Plan::kPoolBell)),
      patience_(Nanoseconds(spin_ns)),
      max_running_(max_running) {
  for (std::uint32_t w = 0; w < plan_.workers; ++w) {
    Port& port = ports_.emplace_back(make_port(w));
    port.first_slot = static_cast<std::uint32_t>(slots_.size());
    port.slots = slots_of_worker[w];
    slots_.insert(slots_.end(), port.slots, Slot{w});
  }
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) all_slots_.push_back(slot);
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

std::vector<std::uint32_t> Hub::targets(nb::handle slots) const {
  auto targets = slots.is_none() ? all_slots_ : nb::cast<std::vector<std::uint32_t>>(slots);
  for (std::uint32_t slot : targets)
    if (slots_[slot].state != SlotState::kIdle)
      throw nb::value_error(("env " + std::to_string(slot) + " is in flight").c_str());
  return targets;
}

void Hub::send(Op op, nb::handle slots, nb::list actions, nb::handle blobs) {
  std::vector<std::uint32_t> targets = this->targets(slots);
  if (op == Op::kStep) copy_actions(targets, actions);
  dispatch(op, targets, blobs);
}

bool Hub::send_steps(nb::handle actions) {
  if (pending() != 0 || actions_.size() != 1 || !actions_[0].fits(actions, plan_.slots)) return false;
  if (choices_ && first_outside(actions, choices_->first, choices_->second) >= 0) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(actions.ptr());
  std::memcpy(actions_[0].row(0), PyArray_DATA(array), actions_[0].row_bytes() * plan_.slots);
  dispatch(Op::kStep, all_slots_, nb::none());
  return true;
}

void Hub::dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs) {
  std::uint32_t frame = open_frame(targets.size());
  rows_out_[frame] += static_cast<std::uint32_t>(targets.size());
  in_flight_ += static_cast<std::uint32_t>(targets.size());
  std::size_t first = 0;  // of the run being gathered
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Slot& slot = slots_[targets[i]];
    slot.state = SlotState::kInFlight;
    slot.op = op;
    slot.row = frame * plan_.slots + targets[i];
    if (!blobs.is_none() && !blobs[i].is_none()) slot.parts = blobs[i];
    bool goes_on = i + 1 < targets.size() && targets[i + 1] == targets[i] + 1 && blobs.is_none() && owed_ == 0 &&
                   slots_[targets[i + 1]].worker == slot.worker;
    if (goes_on) continue;
    auto count = static_cast<std::uint32_t>(i + 1 - first);
    if (!pay(targets[i], op))
      push_run(op, targets[first], count, frame, blobs.is_none() ? nb::none() : nb::object(blobs[i]));
    first = i + 1;
  }
  for (std::uint32_t w = 0; w < ports_.size(); ++w) publish(w);
  raise_interrupt();
}

// A command to all slots fills a frame that can be leased; any other fills rows of the scratch frame,
// where a slot's row is free because a slot has one command at a time.
std::uint32_t Hub::open_frame(std::size_t count) {
  return count == slots_.size() && book_->any_free() ? book_->take() + 1 : 0;
}

void Hub::copy_actions(const std::vector<std::uint32_t>& slots, nb::list actions) {
  if (nb::len(actions) != actions_.size()) throw nb::value_error("one array per action column is needed");
  for (std::size_t c = 0; c < actions_.size(); ++c) {
    nb::handle array = actions[c];
    auto* from = reinterpret_cast<PyArrayObject*>(array.ptr());
    const std::size_t bytes = actions_[c].row_bytes();
    if (!PyArray_Check(array.ptr()) || !PyArray_IS_C_CONTIGUOUS(from) ||
        static_cast<std::size_t>(PyArray_NBYTES(from)) != bytes * slots.size())
      throw nb::value_error("an array of actions does not fit its column");
    const auto* data = static_cast<const std::byte*>(PyArray_DATA(from));
    if (slots.size() == slots_.size() && std::is_sorted(slots.begin(), slots.end())) {
      std::memcpy(actions_[c].row(0), data, bytes * slots.size());
    } else {
      for (std::size_t i = 0; i < slots.size(); ++i) std::memcpy(actions_[c].row(slots[i]), data + i * bytes, bytes);
    }
  }
}

void Hub::push_run(Op op, std::uint32_t slot, std::uint32_t count, std::uint32_t frame, nb::handle parts) {
  Command command{op, slot, frame * plan_.slots + slot, count, ++sequence_, 0, 0};
  push(slots_[slot].worker, command, parts);
}

void Hub::push(std::uint32_t worker, const Command& command, nb::handle parts) {
  Port& port = ports_[worker];
  Command whole = command;
  if (!parts.is_none()) whole.flags = write_parts(port.blobs_out, parts) ? kHasBlob : kOnSocket;
  const bool on_socket = whole.flags == kOnSocket;
  port.commands.push(whole);
  port.outstanding += command.count;
  port.pushed = true;
  if (!on_socket) return;
  publish(worker, true);  // first the record, and out of turn: it makes the worker read the socket
  try {
    send_(worker, parts);
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
  if (!at_once && !port.running && running_ >= max_running_) {
    if (std::find(turns_.begin(), turns_.end(), worker) == turns_.end()) turns_.push_back(worker);
    return;
  }
  if (!port.running && has_deadlines_) port.heard = Clock::now();
  running_ += !port.running;
  port.running = true;
  port.pushed = false;
  port.commands.publish();
  ring(*port.bell);
}

// The worker has nothing left to do: whoever has waited longest is next.
void Hub::finish_turn(Port& port) {
  if (!port.running) return;
  port.running = false;
  --running_;
  while (!turns_.empty() && running_ < max_running_) {
    std::uint32_t next = turns_.front();
    turns_.pop_front();
    publish(next);
  }
}

bool Hub::has_room(std::uint32_t worker) const {
  // The slots' own commands always find room; messages take what is left.
  return ports_[worker].outstanding + ports_[worker].slots < plan_.ring_capacity;
}

std::uint64_t Hub::post_message(Op op, std::uint32_t worker, std::uint32_t slot, nb::handle parts) {
  if (!has_room(worker)) throw nb::value_error("too many messages are waiting for one worker");
  std::uint64_t sequence = ++sequence_;
  ports_[worker].messages.push_back(sequence);
  ++awaited_;
  push(worker, {op, slot, 0, 1, sequence, 0, 0}, parts);
  publish(worker);
  raise_interrupt();
  return sequence;
}

// -- in ----------------------------------------------------------------------------------------------

bool Hub::wait(std::uint32_t wanted, std::int64_t timeout_ns) {
  const auto start = Clock::now();
  const auto deadline = start + Nanoseconds(timeout_ns);
  if (start - looked_ >= kGlance) glance();  // also where the others' results keep coming in time
  while (true) {
    // Read before the rings: what is published after we looked at them rings past this count.
    std::uint32_t heard = bell_->rung.load(std::memory_order_acquire);
    drain();
    if (done() >= wanted) return true;
    if (attention()) return false;
    const auto before = Clock::now();
    if (timeout_ns >= 0 && before >= deadline) return false;
    Nanoseconds limit = timeout_ns < 0 ? kGlance : std::min<Nanoseconds>(kGlance, deadline - before);
    if (alarm_ != Clock::time_point{}) limit = std::clamp<Nanoseconds>(alarm_ - before, Nanoseconds(0), limit);
    // An answer to a message is wanted as soon as it comes, and so is the end of a turn that somebody
    // waits for; results only when there are enough.
    bool each = awaited_ != 0 || !turns_.empty();
    std::uint32_t needed = each ? 1 : std::min(wanted - done(), std::max(in_flight_, 1U));
    {
      nb::gil_scoped_release release;
      remuda::wait(*bell_, heard + needed, limit, patience_);
    }
    waited_ns_ += static_cast<std::uint64_t>(Nanoseconds(Clock::now() - before).count());
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (!reached(*bell_, heard + needed)) glance();
  }
}

void Hub::drain() {
  Result result;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    while (!ports_[w].corrupt && ports_[w].results.front(result)) {
      accept(w, result);  // may be interrupted while it reads the socket: then we start from here again
      ports_[w].results.consume();
    }
  }
}

void Hub::accept(std::uint32_t worker, const Result& result) {
  Port& port = ports_[worker];
  nb::object parts;
  try {
    if (!is_sound(port, result)) throw std::length_error("a result that answers nothing");
    if (result.flags & kHasBlob) parts = read_parts(port.blobs_in);
  } catch (const std::length_error&) {
    port.corrupt = true;
    newly_late_.push_back(worker);
    return;
  }
  if (result.flags & kOnSocket) {
    parts = receive_(worker);
    if (parts.is_none()) return;  // it died while it wrote: the result never came
  }
  port.heard = Clock::time_point(Nanoseconds(result.end_ns));
  port.outstanding -= result.count;
  if (port.outstanding == 0) finish_turn(port);
  const bool is_message = result.flags & kIsMessage;
  if (is_message) {
    std::erase(port.messages, result.sequence);
    --awaited_;
  }
  // In same-step autoreset the result that asks for a renewal is not whole: the next env's reset belongs to it.
  const bool is_whole = !is_message && !(result.flags & kIsFailure) &&
                        !((result.flags & kRenewalDue) && (result.flags & kHasFinal));
  if (is_whole) {
    for (std::uint32_t i = 0; i < result.count; ++i) {
      Slot& slot = slots_[result.env + i];
      slot.state = SlotState::kReady;
      ++slot.results;
    }
    in_flight_ -= result.count;
    ready_slots_ += result.count;
    if (plan_.keeps_last) slots_[result.env].last_parts = parts;
    slots_[result.env].parts.reset();
    ready_.push_back({result.env, result.row, result.count, result.flags & ~kRenewalDue, std::move(parts),
                      std::move(slots_[result.env].terminal)});
    slots_[result.env].terminal.reset();
    if (!(result.flags & kRenewalDue)) return;
  } else if (!is_message) {
    slots_[result.env].state = SlotState::kStranded;
  }
  ++(!is_message && (result.flags & kIsFailure) ? failed_ : answers_);
  nb::object slot = result.env == kWholeWorker ? nb::none() : nb::object(nb::int_(result.env));
  messages_.append(nb::make_tuple(worker, slot, result.sequence, result.flags, none_or(parts)));
}

void Hub::watch(std::uint32_t worker, int pidfd) { ports_[worker].pidfd = pidfd; }

// Looks at everything that does not ring the bell.
void Hub::glance() {
  looked_ = Clock::now();
  find_dead();
  find_late();
  if (alarm_ != Clock::time_point{} && looked_ >= alarm_) news_ = true;
}

void Hub::find_dead() {
#if REMUDA_LINUX
  std::vector<pollfd> fds;
  std::vector<std::uint32_t> workers;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    if (ports_[w].dead || ports_[w].pidfd < 0) continue;
    fds.push_back({ports_[w].pidfd, POLLIN, 0});
    workers.push_back(w);
  }
  for (int fd : listened_) fds.push_back({fd, POLLIN, 0});
  if (relay_fd_ >= 0) fds.push_back({relay_fd_, POLLIN, 0});
  if (fds.empty() || ::poll(fds.data(), fds.size(), 0) <= 0) return;
  for (std::size_t i = workers.size(); i < fds.size(); ++i) news_ = news_ || fds[i].revents != 0;
  drain();  // what the dead still published counts
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (fds[i].revents == 0) continue;
    ports_[workers[i]].dead = true;
    finish_turn(ports_[workers[i]]);
    newly_dead_.push_back(workers[i]);
  }
#endif
}

nb::list Hub::take_dead() {
  nb::list dead;
  for (std::uint32_t w : newly_dead_) {
    Port& port = ports_[w];
    nb::list lost, unanswered;
    for (std::uint32_t slot = port.first_slot; slot < port.first_slot + port.slots; ++slot) {
      if (slots_[slot].state != SlotState::kInFlight) continue;
      slots_[slot].state = SlotState::kStranded;
      lost.append(slot);
    }
    for (std::uint64_t sequence : port.messages) unanswered.append(sequence);
    awaited_ -= static_cast<std::uint32_t>(port.messages.size());
    port.messages.clear();
    dead.append(nb::make_tuple(w, lost, unanswered));
  }
  newly_dead_.clear();
  return dead;
}

nb::list Hub::take_messages() {
  nb::list messages = std::move(messages_);
  messages_ = nb::list();
  answers_ = failed_ = 0;
  return messages;
}

// -- deadlines ---------------------------------------------------------------------------------------

void Hub::set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns) {
  reset_limit_ = Nanoseconds(reset_ns);
  step_limit_ = Nanoseconds(step_ns);
  message_limit_ = Nanoseconds(message_ns);
  has_deadlines_ = reset_ns != 0 || step_ns != 0 || message_ns != 0;
}

Nanoseconds Hub::limit_of(Op op) const {
  if (op == Op::kReset || op == Op::kRevive) return reset_limit_;
  if (op == Op::kMessage || op == Op::kClose) return message_limit_;
  return step_limit_;
}

// A worker is late with what it does; one that does nothing although it has work, with what it was given.
void Hub::find_late() {
  if (!has_deadlines_) return;
  std::vector<std::uint64_t> tasks;
  for (const Port& port : ports_) tasks.push_back(port.meter->task.load(std::memory_order_acquire));
  drain();  // after the tasks were read: who has none any more may have answered just before
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    Port& port = ports_[w];
    if (port.dead || port.absent || port.late || !port.running) continue;
    const Op op = tasks[w] != 0 ? Task::op(tasks[w]) : oldest_op(port);
    const auto begin = tasks[w] != 0 ? Clock::time_point(Nanoseconds(Task::begin_ns(tasks[w]))) : port.heard;
    if (limit_of(op).count() == 0 || looked_ - begin <= limit_of(op)) continue;
    port.late = true;
    newly_late_.push_back(w);
  }
}

Op Hub::oldest_op(const Port& port) const {
  for (std::uint32_t slot = port.first_slot; slot < port.first_slot + port.slots; ++slot)
    if (slots_[slot].state == SlotState::kInFlight) return slots_[slot].op;
  return Op::kMessage;
}

nb::list Hub::take_late() {
  nb::list late;
  for (std::uint32_t w : newly_late_) {
    const Port& port = ports_[w];
    const std::uint64_t task = port.meter->task.load(std::memory_order_acquire);
    const Op op = task != 0 ? Task::op(task) : oldest_op(port);
    late.append(nb::make_tuple(w, port.corrupt ? nb::none() : nb::cast(op)));
  }
  newly_late_.clear();
  return late;
}

nb::tuple Hub::doing(std::uint32_t worker) const {
  const Meter& meter = *ports_[worker].meter;
  const std::uint64_t task = meter.task.load(std::memory_order_acquire);
  const std::uint32_t env = meter.env.load(std::memory_order_relaxed);
  if (task == 0) return nb::make_tuple(nb::none(), nb::none());
  return nb::make_tuple(Task::op(task), env == kWholeWorker ? nb::none() : nb::object(nb::int_(env)));
}

nb::tuple Hub::progress(std::uint32_t slot) const {
  const Progress& progress = progress_[slot];
  return nb::make_tuple(progress.resets.load(std::memory_order_relaxed), progress.steps.load(std::memory_order_relaxed));
}

// A worker can write anything into its rings; what we act upon is checked.
bool Hub::is_sound(const Port& port, const Result& result) const {
  const std::uint32_t first = port.first_slot, end = port.first_slot + port.slots;
  if (result.flags & kIsMessage)
    return std::find(port.messages.begin(), port.messages.end(), result.sequence) != port.messages.end();
  if (result.count == 0 || result.env < first || result.env >= end || result.count > end - result.env) return false;
  for (std::uint32_t i = 0; i < result.count; ++i) {
    const Slot& slot = slots_[result.env + i];
    if (slot.state != SlotState::kInFlight || slot.row != result.row + i) return false;
  }
  return true;
}

// -- what becomes of slots whose env is gone -----------------------------------------------------------

Hub::Slot& Hub::stranded(std::uint32_t slot) {
  if (slots_[slot].state != SlotState::kStranded) throw std::logic_error("the slot is not stranded");
  return slots_[slot];
}

void Hub::drop(std::uint32_t slot) {
  Slot& dropped = stranded(slot);
  dropped.state = SlotState::kIdle;
  dropped.parts.reset();
  --in_flight_;
  rows_done(dropped.row, 1);
}

void Hub::resend(std::uint32_t slot) {
  Slot& again = stranded(slot);
  again.state = SlotState::kInFlight;
  push(again.worker, {again.op, slot, again.row, 1, ++sequence_, 0, 0}, none_or(again.parts));
  publish(again.worker);
  raise_interrupt();
}

void Hub::end_episode(std::uint32_t slot, nb::handle parts) {
  Slot& ended = stranded(slot);
  const std::uint32_t kept = plan_.kept_row(slot, ended.results);
  copy_row(columns_, kFirstOfBatch, ended.row, kept);
  set_flags(ended.row, 0.0, false, true);
  set_flags(kept, 0.0, false, true);
  *reinterpret_cast<std::uint64_t*>(columns_[kInfoMask].row(ended.row)) = 0;
  ended.state = SlotState::kReady;
  ended.parts.reset();
  --in_flight_;
  ++ready_slots_;
  ready_.push_back({slot, ended.row, 1, kHasBlob, nb::borrow(parts)});
}

void Hub::revive(std::uint32_t slot, nb::handle terminal, bool is_complete) {
  Slot& revived = stranded(slot);
  if (!is_complete) {
    copy_row(final_columns_, 0, revived.row, plan_.kept_row(slot, revived.results));
    set_flags(revived.row, 0.0, false, true);
  }
  revived.op = Op::kRevive;
  revived.parts.reset();
  revived.terminal = nb::borrow(terminal);
  resend(slot);
}

void Hub::owe(std::uint32_t slot, nb::handle payment, bool revives) {
  owed_ += !slots_[slot].owed.is_valid();
  slots_[slot].owed = nb::borrow(payment);
  slots_[slot].owed_revives = revives;
}

// Whether the debt is the answer to this command. A reset ends the episode anyway.
bool Hub::pay(std::uint32_t slot, Op op) {
  Slot& debtor = slots_[slot];
  if (!debtor.owed.is_valid()) return false;
  nb::object payment = std::move(debtor.owed);
  debtor.owed.reset();
  --owed_;
  if (op == Op::kReset) return false;
  debtor.state = SlotState::kStranded;
  debtor.owed_revives ? revive(slot, payment, false) : end_episode(slot, payment);
  return true;
}

// The observation's leaves of `columns_` at `from_row`, to the columns from `first_to` on.
void Hub::copy_row(const std::vector<Column>& to, std::size_t first_to, std::uint32_t to_row, std::uint32_t from_row) {
  for (std::size_t leaf = 0; kFirstOfBatch + leaf < columns_.size(); ++leaf) {
    const Column& from = columns_[kFirstOfBatch + leaf];
    std::memcpy(to[first_to + leaf].row(to_row), from.row(from_row), from.row_bytes());
  }
}

void Hub::set_flags(std::uint32_t row, double reward, bool terminated, bool truncated) {
  *reinterpret_cast<double*>(columns_[kReward].row(row)) = reward;
  *reinterpret_cast<bool*>(columns_[kTerminated].row(row)) = terminated;
  *reinterpret_cast<bool*>(columns_[kTruncated].row(row)) = truncated;
}

nb::tuple Hub::last(std::uint32_t slot) const {
  return nb::make_tuple(plan_.kept_row(slot, slots_[slot].results), none_or(slots_[slot].last_parts));
}

bool Hub::is_over(std::uint32_t slot) const {
  const std::uint32_t kept = plan_.kept_row(slot, slots_[slot].results);
  return *reinterpret_cast<const bool*>(columns_[kTerminated].row(kept)) ||
         *reinterpret_cast<const bool*>(columns_[kTruncated].row(kept));
}

void Hub::reopen(std::uint32_t worker) {
  for (std::uint64_t ring : {plan_.commands(worker), plan_.results(worker)}) arena_->at<RingHeader>(ring)->reset();
  for (std::uint64_t blobs : {plan_.blobs_in(worker), plan_.blobs_out(worker)})
    arena_->at<BlobHeader>(blobs)->consumed.store(0);
  Port fresh = make_port(worker);  // its ends begin where the rings do
  fresh.first_slot = ports_[worker].first_slot;
  fresh.slots = ports_[worker].slots;
  fresh.absent = true;
  fresh.bell->sleeping.store(0);  // its predecessor may have died in its sleep
  fresh.meter->task.store(0);
  for (std::uint32_t slot = fresh.first_slot; slot < fresh.first_slot + fresh.slots; ++slot)
    progress_[slot].results.store(slots_[slot].results, std::memory_order_relaxed);
  ports_[worker] = std::move(fresh);
}

void Hub::give_up(std::uint32_t worker) {
  ports_[worker].dead = true;
  newly_dead_.push_back(worker);
}

void Hub::arrive(std::uint32_t worker, int pidfd) {
  ports_[worker].absent = false;
  ports_[worker].pidfd = pidfd;
  publish(worker);
}

// -- batches -----------------------------------------------------------------------------------------

std::vector<Hub::Ready> Hub::remove_ready(std::uint32_t limit) {
  std::vector<Ready> taken;
  std::uint32_t count = 0;
  if (limit >= ready_slots_) {
    taken.swap(ready_);
    count = ready_slots_;
  }
  while (count < limit && !ready_.empty()) {
    Ready& run = taken.emplace_back(ready_.front());
    run.count = std::min(run.count, limit - count);
    count += run.count;
    if (run.count == ready_.front().count) {
      ready_.erase(ready_.begin());
    } else {  // a part of it stays
      ready_.front().slot += run.count;
      ready_.front().row += run.count;
      ready_.front().count -= run.count;
    }
  }
  ready_slots_ -= count;
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) slots_[run.slot + i].state = SlotState::kIdle;
  return taken;
}

// A leasable frame all of whose rows have been dealt with goes back to the book.
void Hub::rows_done(std::uint32_t row, std::uint32_t count) {
  std::uint32_t frame = row / plan_.slots;
  rows_out_[frame] -= count;
  if (rows_out_[frame] == 0 && frame != 0) book_->give_back(frame - 1);
}

bool Hub::is_whole_frame(const std::vector<Ready>& taken) const {
  if (taken.empty()) return false;
  std::uint32_t frame = taken[0].row / plan_.slots, count = 0;
  for (const Ready& run : taken) {
    if (run.row / plan_.slots != frame) return false;
    count += run.count;
  }
  return frame != 0 && count == slots_.size();
}

void Hub::drop_ready() {
  for (const Ready& run : remove_ready(kEverything)) rows_done(run.row, run.count);
}

nb::tuple Hub::take(std::uint32_t limit) {
  std::vector<Ready> taken = remove_ready(limit);
  const bool whole = is_whole_frame(taken);
  // By slot: it is the order of a frame, and what arrived in which order is chance.
  auto by_slot = [](const Ready& a, const Ready& b) { return a.slot < b.slot; };
  if (whole && !std::is_sorted(taken.begin(), taken.end(), by_slot)) std::sort(taken.begin(), taken.end(), by_slot);

  Taken batch = describe(taken);
  // The last free frame is never given away: without it the next command to all would have no row.
  if (whole && book_->any_free()) {
    lend(taken[0].row / plan_.slots, batch);
  } else {
    copy(taken, batch);
  }
  return nb::make_tuple(whole ? nb::object(nb::none()) : slots_of(taken), none_or(batch.columns), none_or(batch.finals),
                        none_or(batch.infos), none_or(batch.extras));
}

std::optional<nb::tuple> Hub::finish() {
  if (pending() == 0 || needs_attention() || !wait(pending(), -1) || needs_attention()) return std::nullopt;
  return take(kEverything);
}

Hub::Taken Hub::describe(const std::vector<Ready>& taken) const {
  Taken batch;
  const auto* mask = reinterpret_cast<const std::uint64_t*>(columns_[kInfoMask].row(0));
  std::size_t position = 0;
  for (const Ready& run : taken) {
    const auto* end = mask + run.row + run.count;
    batch.has_infos = batch.has_infos || std::any_of(mask + run.row, end, [](std::uint64_t m) { return m != 0; });
    batch.has_finals = batch.has_finals || (run.flags & kHasFinal);
    if (run.flags != 0) {
      if (!batch.extras.is_valid()) batch.extras = nb::dict();
      nb::borrow<nb::dict>(batch.extras)[nb::int_(position)] = nb::make_tuple(run.flags, none_or(run.parts), none_or(run.terminal));
    }
    position += run.count;
  }
  return batch;
}

void Hub::lend(std::uint32_t frame, Taken& batch) {
  rows_out_[frame] = 0;  // the lease gives the frame back
  nb::object lease = nb::cast(new Lease(arena_, book_, frame - 1), nb::rv_policy::take_ownership);
  fill(batch, [&](const Column& column) { return column.view(frame * plan_.slots, plan_.slots, lease); });
}

void Hub::copy(const std::vector<Ready>& taken, Taken& batch) {
  std::vector<std::uint32_t> rows;
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) rows.push_back(run.row + i);
  fill(batch, [&](const Column& column) { return gather(column, rows); });
  for (const Ready& run : taken) rows_done(run.row, run.count);
}

template <class MakeArray>
void Hub::fill(Taken& batch, MakeArray make_array) {
  auto arrays = [&](const std::vector<Column>& columns) {
    nb::list arrays;
    for (const Column& column : columns) arrays.append(make_array(column));
    return nb::object(arrays);
  };
  batch.columns = arrays(columns_);
  if (batch.has_finals) batch.finals = arrays(final_columns_);
  if (batch.has_infos) batch.infos = arrays(info_columns_);
}

nb::object Hub::slots_of(const std::vector<Ready>& taken) {
  npy_intp count = 0;
  for (const Ready& run : taken) count += run.count;
  nb::object slots = nb::steal(PyArray_SimpleNew(1, &count, NPY_INT64));
  if (!slots.is_valid()) nb::raise_python_error();
  auto* ids = static_cast<npy_int64*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(slots.ptr())));
  for (const Ready& run : taken)
    for (std::uint32_t i = 0; i < run.count; ++i) *ids++ = run.slot + i;
  return slots;
}

nb::list Hub::meters() const {
  nb::list meters;
  for (const Port& port : ports_)
    meters.append(nb::make_tuple(port.meter->steps.load(std::memory_order_relaxed),
                                 port.meter->busy_ns.load(std::memory_order_relaxed),
                                 port.meter->cpu_ns.load(std::memory_order_relaxed)));
  return meters;
}

}  // namespace remuda
