// The hub's receiving: waits for results, takes them in, and hands them out as batches.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ipc/blob_parts.hpp"
#include "pool/hub/hub.hpp"
#include "pool/workers/soundness.hpp"

namespace remuda {

namespace {

constexpr std::uint32_t kEverything = 0xffffffff;

}  // namespace

// -- waiting -----------------------------------------------------------------------------------------------

bool Hub::wait(std::uint32_t wanted, std::int64_t timeout_ns, std::optional<std::uint32_t> number) {
  CallerMeter::Call call(caller_meter_);
  const bool is_done = wait_from(Clock::now(), wanted, timeout_ns, number);
  if (is_done) call.goes_on();  // what is there is taken next
  return is_done;
}

bool Hub::wait_from(Clock::time_point start, std::uint32_t wanted, std::int64_t timeout_ns,
                    std::optional<std::uint32_t> number) {
  if (callbacks_.pump.is_valid()) {
    callbacks_.pump();
    const auto before = std::exchange(start, Clock::now());  // it may have taken any time
    caller_meter_.note_waited(static_cast<std::uint64_t>(Nanoseconds(start - before).count()));
    if (tracing_.is_on()) tracing_.note_wait(before, start, number.has_value());
  }
  const Part* part = number ? &parts_.at(*number) : nullptr;
  const auto deadline = start + Nanoseconds(timeout_ns);
  clock_.look(start, RunningClock::kUnwatched);
  transfers_.write_on();                  // first: whoever waits for it is not late
  if (watch_.is_due(start)) poll(start);  // also where the others' results keep coming in time
  for (auto now = start;;) {              // of the last look at the clock, of which there is one a turn
    const std::uint32_t heard = bell_.count();
    transfers_.write_on();
    drain();
    if (part != nullptr && part->done() >= wanted) return true;
    if (attention() || entrance_.is_closing()) return false;
    if (part != nullptr && part->pending() < wanted) return false;  // a handler of logs or signals has received them
    if (timeout_ns >= 0 && now >= deadline) return false;
    Nanoseconds limit = watch_.longest_sleep(now);
    if (timeout_ns >= 0) limit = std::min<Nanoseconds>(limit, deadline - now);
    // An answer to a message is wanted as soon as it comes, and so is the end of a turn, or of an episode, that
    // somebody waits for; results only when there are enough.
    const bool each =
        part == nullptr || inbox_.awaits_answers() || outbox_.any_waits_for_turn() || seating_.anyone_asks();
    const std::uint32_t needed = each ? 1 : std::min(wanted - part->done(), std::max(part->in_flight(), 1U));
    if (!bell_.ask_for_all(!each && needed > 1 && needed == parts_.in_flight())) continue;
    const auto before = now;
    bool has_slept;
    {
      nb::gil_scoped_release release;
      has_slept = sleep(heard + needed, limit, now);
    }
    caller_meter_.note_waited(static_cast<std::uint64_t>(Nanoseconds(now - before).count()));
    if (tracing_.is_on()) tracing_.note_wait(before, now, part != nullptr);
    clock_.look(now, RunningClock::kStall);
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if ((has_slept || watch_.is_due(now)) && !bell_.has_reached(heard + needed)) poll(now);
  }
}

// Until the bell has been rung up to `target`, or for about `limit`; or, while messages move, until one of them can go
// on.  False when it was the latter.  `now`: the time before it, and then after it.
bool Hub::sleep(std::uint32_t target, Nanoseconds limit, Clock::time_point& now) {
  if (!bell_.has_reached(target) && transfers_.sleep(limit)) {
    now = Clock::now();
    return false;
  }
  now = bell_.wait(target, limit, now);
  return true;
}

// -- results ---------------------------------------------------------------------------------------------

void Hub::drain() {
  Result result;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    while (ports_[w].is_read() && ports_[w].results.front(result)) {
      if (!accept(w, result)) break;
      ports_[w].results.consume();
    }
  }
  serve_spares();
}

// False when some of it is still to come, and the result is to be looked at again.
bool Hub::accept(std::uint32_t worker, const Result& result) {
  nb::object parts;
  const Arrival arrival = read(worker, result, parts);
  if (arrival == Arrival::kNonsense) mark_corrupt(worker);
  if (arrival != Arrival::kWhole) return arrival != Arrival::kPartial;
  Port& port = ports_[worker];
  port.heard = Clock::time_point(Nanoseconds(result.end_ns));
  port.last_end_ns = result.end_ns;
  if (tracing_.is_on()) tracing_.note_result(worker, result);
  port.outstanding -= result.count;
  if (port.outstanding == 0) outbox_.finish_turn(worker);
  if (result.flags & kIsMessage) {
    std::erase(port.messages, result.sequence);
    const auto env = result.env == kWholeWorker ? std::nullopt : std::optional(result.env);
    tell({worker, env, result.sequence, result.flags, std::move(parts)});
    return true;
  }
  objects_[seating_.slot_of(result.env)].result = std::move(parts);
  accept_rows(worker, result);
  return true;
}

Hub::Arrival Hub::read(std::uint32_t worker, const Result& result, nb::object& parts) {
  Port& port = ports_[worker];
  if (!is_sound(result, port, seating_, slots_)) return Arrival::kNonsense;
  if (result.flags & kOnSocket) return mail_.read(worker, parts);
  if (!(result.flags & kHasBlob)) return Arrival::kWhole;
  try {
    parts = read_parts(port.blobs_in);
  } catch (const std::length_error&) {
    return Arrival::kNonsense;
  }
  return Arrival::kWhole;
}

void Hub::accept_rows(std::uint32_t worker, const Result& result) {
  const std::uint32_t first = seating_.slot_of(result.env);
  Objects& objects = objects_[first];
  const bool failed = result.flags & kIsFailure, ends = result.flags & kHasFinal;
  const bool is_told = failed || (result.flags & kRenewalDue);
  nb::object told = is_told ? objects.result : nb::object();
  // In same-step autoreset the result that asks for another env, or for its renewal, is not whole: that one's reset
  // belongs to it.
  if (ends && (result.flags & kHasSpares) && !failed && !(result.flags & kUndone)) {
    resolution_.await_spare(first);
    objects.terminal = std::move(objects.result);
  } else if (failed || (result.flags & kUndone) || (ends && (result.flags & kRenewalDue))) {
    orphan(first);
    objects.result.reset();
  } else {
    finish_rows(first, result);
  }
  if (is_told) tell({worker, first, result.sequence, result.flags, std::move(told)});
}

void Hub::finish_rows(std::uint32_t first, const Result& result) {
  for (std::uint32_t slot = first; slot < first + result.count; ++slot) {
    slots_.finish(slot);
    if (slots_[slot].op != Op::kObserve) last_results_.count(env_of(slot));  // else it is nothing new
  }
  if (plan_.keeps_last) last_parts_[result.env] = objects_[first].result;
  objects_[first].command.reset();
  parts_.of(first).finish({first, result.row, result.count, result.flags & ~(kRenewalDue | kGrown)});
}

// Gives a fresh env to each slot that ended an episode, or was cut off, and is to begin another in the same step, if
// its turn has come.
void Hub::serve_spares() {
  if (!seating_.anyone_asks()) return;
  if (slots_.any_orphaned_step()) watch_.raise_news();  // what becomes of it is decided next, and then we look again
  for (std::uint32_t slot : seating_.take_due(slots_.first_open_step())) {
    swap_in_spare(slot);
    slots_.orphan(slot);
    follow(resolution_.reset_into_row(slot, true), slot, nb::object(objects_[slot].terminal));
    watch_.raise_news();  // workers that are the caller himself must be given the chance to run
  }
}

// -- batches ---------------------------------------------------------------------------------------------

std::vector<Run> Hub::take_ready(Part& part, std::uint32_t limit) {
  std::vector<Run> runs = part.take(limit);
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; ++i) slots_.take(run.slot + i);
  return runs;
}

nb::object Hub::take(std::uint32_t limit, bool by_slot, nb::handle slots, std::uint32_t number, std::uint32_t pad_to) {
  std::vector<std::uint32_t> order;
  if (!slots.is_none() && !read_targets(slots, number, order))
    throw nb::value_error("expected the slots that are ready, each once");
  return take_rows(limit, by_slot, order, number, pad_to);
}

// `order`: of the rows, by their slots; empty: in that of arrival, or of slots.
nb::object Hub::take_rows(std::uint32_t limit, bool by_slot, const std::vector<std::uint32_t>& order,
                          std::uint32_t number, std::uint32_t pad_to) {
  Part& part = parts_.at(number);
  std::vector<Run> runs = take_ready(part, limit);
  // By slot is the order of a frame, and what arrived in which order is chance.
  const bool is_ascending = std::is_sorted(order.begin(), order.end());
  const bool whole = is_ascending && part.is_whole_frame(runs);
  auto is_before = [](const Run& a, const Run& b) { return a.slot < b.slot; };
  if (!is_ascending)
    runs = in_order(runs, order, plan_.width);
  else if ((whole || by_slot || !order.empty()) && !std::is_sorted(runs.begin(), runs.end(), is_before))
    std::sort(runs.begin(), runs.end(), is_before);

  nb::object extras = take_extras(runs);
  const nb::object rollout = objects_of_part(number).lease;
  if (rollout.is_valid()) note_filled(number, runs, extras);
  const bool is_padded = pad_to != 0 && !(whole && pad_to == part.slots().size());
  nb::object batch = nb::inst_alloc(callbacks_.batch_type);
  auto* const place = nb::inst_ptr<Batch>(batch);
  if (is_padded)
    new (place) Batch(frame_taker_.take_padded(part, runs, pad_to, std::move(extras)));
  else
    new (place) Batch(frame_taker_.take(part, runs, whole, whole ? env_ids(number) : FrameTaker::slots_of(runs),
                                        std::move(extras), objects_of_part(number).lent, rollout));
  nb::inst_mark_ready(batch);
  if (rollout.is_valid()) forget_rollout(number);
  if (tracing_.is_on()) tracing_.note_batch(place->count());
  const bool has_new_keys =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return (run.flags & kHasNewKeys) != 0; });
  const std::vector<std::uint32_t> ended = note_ends(runs);
  if (!ended.empty()) {
    TimeOfCall now;
    dispatch(Op::kReset, ended, nb::none(), part, now);
  }
  return hand_over(std::move(batch), has_new_keys);
}

nb::object Hub::hand_over(nb::object batch, bool has_new_keys) {
  caller_meter_.hand_over();
  if ((has_new_keys || batches() == look_at_) && callbacks_.look.is_valid()) {
    const Entrance::Pause pause(entrance_);
    callbacks_.look(batch);
  }
  return batch;
}

nb::object Hub::receive(std::uint32_t wanted, std::uint32_t number) {
  TimeOfCall now;
  const CallerMeter::Call call(caller_meter_);
  return receive_from(now, wanted, number, {});
}

nb::object Hub::receive_from(TimeOfCall& now, std::uint32_t wanted, std::uint32_t number,
                             const std::vector<std::uint32_t>& order) {
  const std::uint32_t there = pending(number);
  if (tracing_.is_on()) tracing_.note_call(now.get());
  const auto is_ordinary = [this] { return !needs_attention() && !has_unheard() && !obstacles_->any_untold(); };
  if (there == 0 || !is_ordinary()) return nb::none();
  if (!wait_from(now.get(), wanted == 0 ? there : std::min(wanted, there), -1, number) || !is_ordinary())
    return nb::none();
  return take_rows(kEverything, false, order, number);
}

void Hub::drop_ready(std::uint32_t number) {
  Part& part = parts_.at(number);
  const std::vector<Run> dropped = take_ready(part, kEverything);
  take_extras(dropped);
  const std::vector<std::uint32_t> ended = note_ends(dropped);
  for (const Run& run : dropped) part.free_rows(run.row, run.count);
  part.tell_failed(slots_);
  forget_rollout(number);
  if (ended.empty()) return;
  TimeOfCall now;
  dispatch(Op::kReset, ended, nb::none(), part, now);
}

// What comes with some of the rows; null, if nothing does.
nb::object Hub::take_extras(const std::vector<Run>& runs) {
  nb::object extras;
  std::size_t position = 0;
  for (const Run& run : runs) {
    Objects& objects = objects_[run.slot];
    const nb::object parts = std::move(objects.result), terminal = std::move(objects.terminal);
    if (run.flags != 0) {
      if (!extras.is_valid()) extras = nb::dict();
      nb::borrow<nb::dict>(extras)[nb::int_(position)] = nb::make_tuple(run.flags, none_or(parts), none_or(terminal));
    }
    position += run.count;
  }
  return extras;
}

// Where the end of an episode concerns us: remembers it, and returns the slots that reset in the background.
std::vector<std::uint32_t> Hub::note_ends(const std::vector<Run>& runs) {
  std::vector<std::uint32_t> resetting;
  const bool in_background = autoreset_ == Autoreset::kBackground;
  if (autoreset_ == Autoreset::kSameStep || (!seating_.has_spares() && !in_background)) return resetting;
  for (const Run& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (!last_results_.ends_episode(run.row + i)) continue;
      slots_.end_episode(run.slot + i);
      if (in_background) resetting.push_back(run.slot + i);
    }
  }
  return resetting;
}

// -- what has to be dealt with ---------------------------------------------------------------------------

void Hub::tell(Message message) {
  if (message.is_fault()) parts_.of(*message.slot).count_reported(plan_.width);
  inbox_.add(std::move(message));
}

nb::object Hub::first_message() const {
  if (!inbox_.has_message()) return nb::none();
  const Message& first = inbox_.first_message();
  return nb::make_tuple(first.worker, first.slot ? nb::object(nb::int_(*first.slot)) : nb::none(), first.sequence,
                        first.flags, none_or(first.parts));
}

void Hub::remove_message() {
  const Message& first = inbox_.first_message();
  if (first.is_fault()) parts_.of(*first.slot).discount_reported(plan_.width);
  inbox_.remove_message();
}

}  // namespace remuda
