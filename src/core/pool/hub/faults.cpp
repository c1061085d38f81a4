// The hub's handling of faults: dead workers, missed deadlines, and slots of failed envs.
#include <algorithm>
#include <utility>

#include "pool/hub/hub.hpp"

namespace remuda {

// -- events ------------------------------------------------------------------------------------------------

nb::list Hub::take_events() {
  const auto now = workers_.watch()->look();
  // Bytes are written before the check for late workers, because a worker that waits for these bytes is not late.
  workers_.mail().write_on();
  for (std::uint32_t worker : workers_.watch()->ended()) inbox_.add_ended(worker);
  drain();  // follows the look for ended workers, and so accepts all that they have published
  if (workers_.has_deadlines()) find_late(now);
  nb::list events;
  for (Message& message : inbox_.take_messages()) events.append(nb::cast(std::move(message)));
  for (const LateWorker& late : inbox_.take_late()) events.append(nb::cast(late));
  for (std::uint32_t worker : inbox_.take_ended()) events.append(nb::cast(EndedWorker{worker}));
  return events;
}

nb::object Hub::in_absence(nb::handle function) {
  if (!lock_.is_mine()) return function();
  HubLock::Absence absence(lock_);
  nb::object result = function();
  HubLock::return_from(absence);
  return result;
}

void Hub::decide(nb::handle function) {
  struct AtEnd {
    ~AtEnd() {
      hub.is_undecided_ = false;
      hub.wake_callers();
      hub.workers_.watch()->check_at(hub.workers_.next_check(Clock::now()));
    }
    Hub& hub;
  };
  const AtEnd at_end{*this};
  ++decisions_;
  if (nb::cast<bool>(function())) ++faults_;
}

// -- log records -------------------------------------------------------------------------------------------

void Hub::log(bool is_apart) {
  if (!callbacks_.log.is_valid()) return;
  const Turn::Thread thread = PyThread_get_thread_ident();
  {
    const nb::gil_scoped_release release;
    if (!emission_.begin(thread)) return;
  }
  const auto log = [&] {
    struct AtEnd {
      ~AtEnd() { turn.set_log_thread(0); }
      Turn& turn;
    };
    if (!is_apart) return void(callbacks_.log());
    lock_.turn().set_log_thread(thread);
    const AtEnd at_end{lock_.turn()};
    callbacks_.log();
  };
  try {
    do log();
    while (!emission_.try_end());
  } catch (...) {
    emission_.end();
    throw;
  }
}

bool Hub::log_news() {
  const std::uint64_t news = std::uint64_t{faults_} << 32 | workers_.records_sent();
  if (news == logged_) return false;
  if (lock_.is_mine())
    lock_.run_outside([this] { log(false); });
  else
    log(false);
  logged_ = news;  // only now, because a thread that finds no news does not wait for the one that emits them
  return true;
}

// -- deaths ------------------------------------------------------------------------------------------------

DeadWorker Hub::end(std::uint32_t worker) {
  if (workers_.state(worker) != WorkerState::kDead) workers_.end(worker);
  DeadWorker dead{slots_.in_flight_of(worker), std::exchange(workers_[worker].messages, {})};
  for (std::uint32_t slot : dead.orphaned) slots_.orphan(slot);
  inbox_.forgo_answers(dead.unanswered.size());
  return dead;
}

void Hub::reopen(std::uint32_t worker) {
  workers_.reopen(worker);
  slots_.reopen(workers_[worker].first_env, workers_[worker].envs);
}

std::vector<std::uint64_t> Hub::break_all() {
  std::vector<std::uint64_t> unanswered;
  for (std::uint32_t worker = 0; worker < workers_.count(); ++worker) {
    const DeadWorker dead = end(worker);
    unanswered.insert(unanswered.end(), dead.unanswered.begin(), dead.unanswered.end());
  }
  for (std::uint32_t slot = 0; slot < plan_.slots; slot += plan_.width)
    if (slots_[slot].state == SlotState::kOrphaned) slots_.apply(slot, Outcome::kDrop, nb::none());
  return unanswered;
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
    workers_[w].become(workers_.state(w) == WorkerState::kClosing ? WorkerState::kKilled : WorkerState::kLate);
    inbox_.add_late({w, *op, workers_[w].is_at(tasks[w]) ? tasks[w] : 0});
  }
}

// -- slots of failed envs ----------------------------------------------------------------------------------

void Hub::settle(std::uint32_t first, Fate fate, nb::object data) {
  const Outcome outcome = slots_.outcome_of(first, fate);
  const PoolRow row = row_for(outcome);
  if (row != PoolRow::kNone) data = callbacks_.make_rows(first, data, row == PoolRow::kTerminal);
  if (slots_.apply(first, outcome, data)) push_again(first);
}

// Returns the rows with which the pool answers this command to these slots itself: for each env, the data without a
// column, or None if its worker answers. Returns None if the workers answer all.
nb::object Hub::known_rows(Op op, std::vector<std::uint32_t> targets) {
  nb::list rows;
  bool any = false;
  for (std::size_t i = 0; i < targets.size(); i += plan_.width) {
    const bool is_known = op == Op::kRepeat || slots_.answers_observe(targets[i]);
    rows.append(is_known ? callbacks_.make_rows(targets[i], nb::none(), false) : nb::none());
    any |= is_known;
  }
  return any ? nb::object(rows) : nb::none();
}

}  // namespace remuda
