// The hub's receiving: waits for results, accepts them, and hands them out as batches.
#include <algorithm>
#include <utility>

#include "pool/hub/hub.hpp"
#include "pool/workers/soundness.hpp"

namespace remuda {

constexpr std::uint32_t kEverything = 0xffffffff;
// The longest sleep, because a signal that arrives just before the sleep does not end it.
constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds(50);
// The longest wait for the turn after a sleep, before the first check for signals.
constexpr Nanoseconds kMoment = std::chrono::milliseconds(10);

bool Hub::wait(std::uint32_t wanted, std::int64_t timeout_ns, std::optional<std::uint32_t> number) {
  CallerMeter::Call call(caller_meter_);
  const bool is_done = wait_from(Clock::now(), wanted, timeout_ns, number);
  if (is_done) call.goes_on();  // The measurement goes on, because the caller takes the results next.
  return is_done;
}

bool Hub::wait_from(Clock::time_point start, std::uint32_t wanted, std::int64_t timeout_ns,
                    std::optional<std::uint32_t> number) {
  pass_on();
  if (callbacks_.pump.is_valid()) {
    workers_.take_published();
    callbacks_.pump();
    const auto before = std::exchange(start, Clock::now());  // the pump may have run for a long time
    caller_meter_.note_waited(static_cast<std::uint64_t>(Nanoseconds(start - before).count()));
    if (tracing_.is_on()) tracing_.note_wait(before, start, number.has_value());
  }
  const Part* part = number ? &slots_.parts().at(*number) : nullptr;
  const auto deadline = start + Nanoseconds(timeout_ns);
  const std::uint64_t decisions = decisions_;
  std::optional<std::uint64_t> logged_at;  // what was there when log records were last emitted
  for (auto now = start;;) {               // the clock is read once per turn of the loop
    const std::uint32_t heard = bell_.count();
    workers_.mail().write_on();
    drain();
    const bool is_done = part != nullptr && part->done() >= wanted;
    const bool is_late = timeout_ns >= 0 && now >= deadline;
    // A late wait with results, which the caller then takes, is over like any other. A wait that is over only ends
    // after the decision on failures that have arrived, so that outcomes do not depend on timing.
    const bool is_over = is_done || (part == nullptr ? decisions_ != decisions
                                                     : slots_.guards()->is_urgent() || (is_late && part->done() > 0));
    if (is_over && callbacks_.pump.is_valid() && workers_.take_published()) {  // commands of the supervisor
      callbacks_.pump();
      continue;
    }
    // Records come before the results that they belong to. Those that workers send meanwhile are of other results, and
    // may come faster than they can be emitted. Code of the program may have changed everything.
    const std::uint64_t there = part == nullptr ? decisions_ : part->done();
    if (is_over && !is_undecided_ && logged_at != there && log_news()) {
      logged_at = there;
      if (number && !slots_.has_part(*number)) return false;
      part = number ? &slots_.parts().at(*number) : nullptr;
      continue;
    }
    if (is_over && !is_undecided_) return is_done;
    if (lock_.turn().is_closing() || (is_late && !is_over)) return false;
    // A log handler or signal handler has taken results.
    if (part != nullptr && part->pending() < wanted) return false;
    Nanoseconds limit = kLongestSleep;
    if (timeout_ns >= 0 && !is_late) limit = std::min<Nanoseconds>(limit, deadline - now);
    // A result may bring the answer to a message, free a turn for a waiting worker, or free a spare for a waiting slot.
    // If the caller waits for one of these, it wakes up for each result; otherwise only for enough results. It also
    // wakes up for each result if other threads wait: only one thread sleeps on the bell, and it wakes the others.
    const bool each = part == nullptr || is_over || inbox_.awaits_answers() || workers_.any_waits_for_turn() ||
                      slots_.seating().anyone_asks() || sleeps_for_ != 0 || followers_ != 0;
    const std::uint32_t needed = each ? 1 : std::min(wanted - part->done(), std::max(part->in_flight(), 1U));
    const auto before = now;
    pass_on();  // the commands of workers that got a turn since the last wait
    if (callbacks_.pump.is_valid() && workers_.take_published()) {
      callbacks_.pump();
      now = Clock::now();
      continue;
    }
    if (!bell_.ask_for_all(!each && needed > 1 && needed == slots_.parts().in_flight())) continue;
    sleep(heard, needed, limit, now);
    caller_meter_.note_waited(static_cast<std::uint64_t>(Nanoseconds(now - before).count()));
    if (tracing_.is_on()) tracing_.note_wait(before, now, part != nullptr);
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

void Hub::pass_on() {
  if (callbacks_.pass_on.is_valid() && workers_.take_published()) callbacks_.pass_on();
}

// Sleeps without the GIL, and lets other threads enter. The first thread sleeps on the bell until it was rung `needed`
// times after `heard`, or for about `limit`. While messages are under way, it sleeps only until one of them can
// continue. The other threads wait until the first one has woken up; for their sake it wakes up for each result. `now`:
// the time before the sleep; becomes the time after it.
void Hub::sleep(std::uint32_t heard, std::uint32_t needed, Nanoseconds limit, Clock::time_point& now) {
  const Mail::UnderWay messages = workers_.mail().under_way();
  const std::uint64_t news = lock_.turn().news();
  ++followers_;  // before the look at `sleeps_for_`: the thread that clears it then looks at `followers_`
  const std::uint32_t other = sleeps_for_;
  if (other == 0) {
    --followers_;
    sleeps_for_ = needed;
  } else if (other > 1) {
    bell_.wake(other);
  }
  HubLock::Absence absence(lock_);
  {
    const nb::gil_scoped_release release;
    if (other != 0) {
      lock_.turn().await_news(news, limit);
      --followers_;
      now = Clock::now();
    } else {
      if (!bell_.has_reached(heard + needed) && messages.sleep(limit))
        now = Clock::now();
      else
        now = bell_.wait(heard + needed, limit, now);
      sleeps_for_ = 0;
      if (followers_ != 0) lock_.turn().announce();
    }
    if (absence.end(kMoment)) return;
  }
  HubLock::return_from(absence);
}

void Hub::drain() {
  Result result;
  for (std::uint32_t w = 0; w < workers_.count(); ++w) {
    Port& port = workers_[w];
    while (port.is_read() && port.results.front(result)) {
      if (!accept(w, result)) break;
      port.results.consume();
    }
  }
  serve_spares();
}

// Accepts a result. Returns false if some data of the result has not arrived yet; then the same result must be accepted
// again later.
bool Hub::accept(std::uint32_t worker, const Result& result) {
  nb::object parts;
  const Mail::Arrival arrival = is_sound(result, workers_[worker], slots_.seating(), slots_.states())
                                    ? workers_.read(worker, result, parts)
                                    : Mail::Arrival::kNonsense;
  if (arrival == Mail::Arrival::kNonsense) {
    workers_[worker].become(WorkerState::kCorrupt);
    inbox_.add_late({worker, std::nullopt, 0});
    workers_.watch()->wake();
  }
  if (arrival != Mail::Arrival::kWhole) return arrival != Mail::Arrival::kPartial;
  workers_.note_result(worker, result);
  if (tracing_.is_on()) tracing_.note_result(worker, result);
  const bool needs_decision = result.flags & (kIsFailure | kRenewalDue);
  is_undecided_ |= needs_decision;
  if (result.flags & kIsMessage) {
    const auto env = result.env == kWholeWorker ? std::nullopt : std::optional(result.env);
    inbox_.add({worker, env, result.sequence, result.flags, std::move(parts)});
    workers_.watch()->wake();
    return true;
  }
  nb::object message = needs_decision ? parts : nb::object();
  const std::uint32_t first = slots_.accept(result, std::move(parts));
  if (!needs_decision) return true;
  inbox_.add({worker, first, result.sequence, result.flags, std::move(message)});
  workers_.watch()->wake();
  return true;
}

// Gives a spare env to each slot that waits for one, if it is the slot's turn. The episode of such a slot has ended or
// was cut off, and the spare's first observation completes the slot's result.
void Hub::serve_spares() {
  if (!slots_.seating().anyone_asks()) return;
  for (std::uint32_t slot : slots_.take_spares_due()) {
    swap_in_spare(slot);
    if (slots_.complete_with_spare(slot)) push_again(slot);
  }
}

nb::object Hub::take(std::uint32_t limit, bool by_slot, nb::handle slots, std::uint32_t number) {
  std::vector<std::uint32_t> order;
  if (!slots.is_none() && !read_targets(slots, number, order))
    throw nb::value_error("expected the slots that are ready, each once");
  return take_rows(limit, by_slot, order, number);
}

// `order`: the slots whose rows are taken, in the order of the batch's rows. Returns None if one of them is not ready,
// because code that ran during the wait has sent other slots' commands. If `order` is empty, the rows are sorted by
// slot if `by_slot`, else by arrival.
nb::object Hub::take_rows(std::uint32_t limit, bool by_slot, const std::vector<std::uint32_t>& order,
                          std::uint32_t number) {
  Part& part = slots_.parts().at(number);
  if (!order.empty()) {
    if (!slots_.are_ready(order)) return nb::none();
    if (part.ready() != order.size()) part.bring_forward(order, plan_.width);
    limit = static_cast<std::uint32_t>(order.size());
  }
  std::vector<Run> runs = part.first_ready(limit);
  // The results of one command to all slots are sorted by slot, because their order of arrival depends on timing.
  const bool is_ascending = std::is_sorted(order.begin(), order.end());
  const bool whole = is_ascending && part.is_whole_frame(runs), all = whole || part.are_of_all(runs);
  auto is_before = [](const Run& a, const Run& b) { return a.slot < b.slot; };
  if (!is_ascending)
    runs = in_order(runs, order, plan_.width);
  else if ((all || by_slot || !order.empty()) && !std::is_sorted(runs.begin(), runs.end(), is_before))
    std::sort(runs.begin(), runs.end(), is_before);

  // If anything throws until `slots_.take`, the results stay ready, for the next call.
  nb::object extras = slots_.extras_of(runs);
  const nb::object rollout = objects_of_part(number).lease;
  if (rollout.is_valid()) note_filled(number, runs, extras);
  nb::object batch = nb::inst_alloc(callbacks_.batch_type);
  auto* const place = nb::inst_ptr<Batch>(batch);
  new (place) Batch(frame_taker_.take(part, runs, whole, whole ? env_ids(number) : FrameTaker::slots_of(runs),
                                      std::move(extras), objects_of_part(number).lent, rollout));
  nb::inst_mark_ready(batch);
  slots_.take(part, runs);
  if (rollout.is_valid()) forget_rollout(number);
  if (tracing_.is_on()) tracing_.note_batch(place->count());
  const bool has_new_keys = any_has(kHasNewKeys, runs);
  const std::vector<std::uint32_t> ended = slots_.note_ends(runs);
  if (!ended.empty()) {
    TimeOfCall now;
    dispatch(Op::kReset, ended, nb::none(), part, now);
  }
  caller_meter_.hand_over();
  if ((has_new_keys || caller_meter_.batches() == callbacks_.look_at) && callbacks_.look.is_valid()) {
    const Turn::Pause pause(lock_.turn());
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
  const std::uint32_t there = slots_.pending(number);
  if (tracing_.is_on()) tracing_.note_call(now.get());
  const auto is_ordinary = [this] { return !slots_.guards()->any_unraised(); };
  if (there == 0 || !is_ordinary()) return nb::none();
  if (!wait_from(now.get(), wanted == 0 ? there : std::min(wanted, there), -1, number) || !is_ordinary())
    return nb::none();
  return take_rows(kEverything, false, order, number);
}

void Hub::drop_ready(std::uint32_t number) {
  Part& part = slots_.parts().at(number);
  const std::vector<Run> dropped = part.first_ready(kEverything);
  slots_.take(part, dropped);
  const std::vector<std::uint32_t> ended = slots_.note_ends(dropped);
  for (const Run& run : dropped) part.free_rows(run.row, run.count);
  slots_.release_failed(number);
  forget_rollout(number);
  if (ended.empty()) return;
  TimeOfCall now;
  dispatch(Op::kReset, ended, nb::none(), part, now);
}

}  // namespace remuda
