// The hub's handling of faults: dead workers, missed deadlines, and slots of failed envs.
#include <algorithm>
#include <utility>

#include "pool/hub/hub.hpp"

namespace remuda {

// -- events ------------------------------------------------------------------------------------------------

nb::list Hub::take_events() {
  const auto now = Clock::now();
  workers_.clock().look(now, workers_.watch()->planned() + RunningClock::kStall);
  // Bytes are written before the check for late workers, because a worker that waits for these bytes is not late.
  workers_.mail().write_on();
  const std::vector<std::uint32_t> ended = workers_.watch()->ended();
  drain();  // follows the look for ended workers, and so accepts all that they have published
  for (std::uint32_t worker : ended) {
    workers_.end(worker);
    inbox_.add_dead(worker);
  }
  if (workers_.has_deadlines()) find_late(now);
  nb::list events;
  for (Message& message : inbox_.take_messages()) events.append(nb::cast(std::move(message)));
  for (const LateWorker& late : inbox_.take_late()) events.append(nb::cast(late));
  for (std::uint32_t worker : inbox_.take_dead()) events.append(dead_worker(worker));
  return events;
}

nb::object Hub::dead_worker(std::uint32_t worker) {
  DeadWorker dead{worker, slots_.in_flight_of(worker), std::exchange(workers_[worker].messages, {})};
  for (std::uint32_t slot : dead.orphaned) slots_.orphan(slot);
  inbox_.forgo_answers(dead.unanswered.size());
  return nb::cast(std::move(dead));
}

nb::object Hub::in_absence(nb::handle function) {
  struct WithoutGil {
    ~WithoutGil() {
      const nb::gil_scoped_release release;
      absence.reset();
    }
    std::optional<HubLock::Absence> absence;
  };
  WithoutGil here;
  if (lock_.is_in_turn()) here.absence.emplace(lock_);
  return function();
}

nb::object Hub::decide(nb::handle function) {
  struct AtEnd {
    ~AtEnd() {
      hub.wake_callers();
      hub.workers_.watch()->check_at(hub.workers_.next_check(Clock::now()));
    }
    Hub& hub;
  };
  const AtEnd at_end{*this};
  lock_.become_supervisor();
  ++decisions_;
  is_untold_ = true;
  return function(take_events());
}

void Hub::told(std::uint32_t records) {
  records_told_ = records;
  is_untold_ = inbox_.any_messages();
  awaits_telling_ = false;
  wake_callers();
}

// Returns whether all faults so far were decided on and logged, and this number of log records of workers, too. A log
// handler that calls the pool in the supervisor's thread must not wait for that.
bool Hub::is_told(std::uint32_t records) const {
  if (!is_untold_ && static_cast<std::int32_t>(records_told_ - records) >= 0) return true;
  return lock_.is_supervisor(PyThread_get_thread_ident());
}

// -- deaths ------------------------------------------------------------------------------------------------

void Hub::reopen(std::uint32_t worker) {
  workers_.reopen(worker);
  slots_.reopen(workers_[worker].first_env, workers_[worker].envs);
}

nb::object Hub::give_up(std::uint32_t worker) {
  workers_.end(worker);
  return dead_worker(worker);
}

void Hub::find_late(Clock::time_point now) {
  std::vector<std::uint64_t> tasks;
  for (std::uint32_t w = 0; w < workers_.count(); ++w) tasks.push_back(workers_[w].task());
  drain();  // Must follow the loop above: a worker without a task has published the result of its last one.
  for (std::uint32_t w = 0; w < workers_.count(); ++w) {
    const std::vector<std::uint32_t> slots = slots_.in_flight_of(w);
    const Op oldest = slots.empty() ? Op::kMessage : slots_.last_op(slots.front());
    const auto op = workers_.late_with(w, tasks[w], oldest, now);
    if (!op) continue;
    workers_[w].become(PortState::kLate);
    inbox_.add_late({w, *op, workers_[w].is_at(tasks[w]) ? tasks[w] : 0});
  }
}

// -- slots of failed envs ----------------------------------------------------------------------------------

void Hub::resolve(std::uint32_t slot, Outcome outcome, nb::handle parts) {
  if (slots_.resolve(slot, outcome, parts)) push_again(slot);
}

}  // namespace remuda
