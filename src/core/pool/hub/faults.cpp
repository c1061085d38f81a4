// The hub's handling of faults: dead workers, missed deadlines, and slots of failed envs.
#include "pool/hub/hub.hpp"

namespace remuda {

// Checks for dead and late workers, which ring no bell.
void Hub::poll(Clock::time_point now) {
  const std::vector<std::uint32_t> ended = workers_.watch().look(now);
  if (!ended.empty()) drain();  // accepts the results that the ended workers published before
  for (std::uint32_t worker : ended) {
    workers_.end(worker);
    inbox_.add_dead(worker);
  }
  if (workers_.has_deadlines()) find_late(now);
}

void Hub::reopen(std::uint32_t worker) {
  workers_.reopen(worker);
  slots_.reopen(workers_[worker].first_env, workers_[worker].envs);
}

void Hub::give_up(std::uint32_t worker) {
  workers_[worker].become(PortState::kDead);
  inbox_.add_dead(worker);
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

nb::object Hub::first_event() const {
  if (inbox_.has_message()) return nb::cast(inbox_.first_message());
  if (const auto late = inbox_.first_late()) return nb::cast(*late);
  if (const auto dead = inbox_.first_dead())
    return nb::cast(DeadWorker{*dead, slots_.in_flight_of(*dead), workers_[*dead].messages});
  return nb::none();
}

void Hub::remove_event() {
  if (inbox_.has_message()) {
    const Message& first = inbox_.first_message();
    if (first.is_fault()) slots_.parts().of(*first.slot).discount_reported(plan_.width);
    inbox_.remove_message();
  } else if (inbox_.first_late()) {
    inbox_.remove_late();
  } else {
    const std::uint32_t worker = inbox_.first_dead().value();
    std::vector<std::uint64_t>& unanswered = workers_[worker].messages;
    for (std::uint32_t slot : slots_.in_flight_of(worker)) slots_.orphan(slot);
    inbox_.forgo_answers(unanswered.size());
    unanswered.clear();
    inbox_.remove_dead();
  }
}

void Hub::resolve(std::uint32_t slot, Outcome outcome, nb::handle parts) {
  if (slots_.resolve(slot, outcome, parts)) push_again(slot);
}

}  // namespace remuda
