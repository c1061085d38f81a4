#include "hub.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "blob_parts.hpp"

namespace remuda {

namespace {

constexpr Nanoseconds kGlance = std::chrono::milliseconds(10);  // the bound on noticing what does not ring

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
    nb::object parts = blobs.is_none() ? nb::none() : nb::object(blobs[i]);
    if (!pay(targets[i], op) && !answer_here(targets[i], op, parts)) push_run(op, targets[first], count, frame, parts);
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
  // The slots' own commands always find room, and for each a message of ours; others take what is left.
  return ports_[worker].outstanding + ports_[worker].slots < plan_.ring_capacity;
}

std::uint64_t Hub::post_message(Op op, std::uint32_t worker, std::uint32_t slot, nb::handle parts) {
  if (ports_[worker].outstanding >= plan_.ring_capacity)
    throw nb::value_error("too many messages are waiting for one worker");
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
    return distrust(worker);
  }
  if (result.flags & kOnSocket) {
    parts = receive_(worker);
    if (parts.is_none()) return;  // it died while it wrote: the result never came
    if (parts.is(nb::bool_(false))) return distrust(worker);
  }
  port.heard = Clock::time_point(Nanoseconds(result.end_ns));
  port.last_end_ns = result.end_ns;
  port.outstanding -= result.count;
  if (port.outstanding == 0) finish_turn(port);
  const bool is_message = result.flags & kIsMessage;
  if (is_message) {
    std::erase(port.messages, result.sequence);
    --awaited_;
  }
  // In same-step autoreset the result that asks for a renewal is not whole: the next env's reset belongs to it.
  const bool is_whole =
      !is_message && !(result.flags & kIsFailure) && !((result.flags & kRenewalDue) && (result.flags & kHasFinal));
  if (is_whole) {
    for (std::uint32_t i = 0; i < result.count; ++i) {
      Slot& slot = slots_[result.env + i];
      slot.state = SlotState::kReady;
      if (slot.op == Op::kObserve) continue;  // nothing new
      ++slot.results;
      slot.fresh = false;
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

nb::list Hub::take_messages() {
  nb::list messages = std::move(messages_);
  messages_ = nb::list();
  answers_ = failed_ = 0;
  return messages;
}

}  // namespace remuda
