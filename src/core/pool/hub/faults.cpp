// The hub's dealing with what goes wrong: deaths, deadlines, and slots whose env is gone.
#include <algorithm>

#include "pool/hub/hub.hpp"

namespace remuda {

// -- deaths ------------------------------------------------------------------------------------------------

// Looks at everything that does not ring the bell.
void Hub::poll(Clock::time_point now) {
  find_dead(now);
  find_late(now);
}

void Hub::find_dead(Clock::time_point now) {
  const std::vector<std::uint32_t> ended = workers_.watch().look(now);
  if (ended.empty()) return;
  drain();  // what the dead still published counts
  for (std::uint32_t worker : ended) {
    workers_.end(worker);
    inbox_.add_dead(worker);
  }
}

nb::object Hub::first_dead() const {
  const auto dead = inbox_.first_dead();
  if (!dead) return nb::none();

  nb::list in_flight, unanswered;
  for (std::uint32_t slot : slots_.in_flight_of(*dead)) in_flight.append(slot);
  for (std::uint64_t sequence : workers_[*dead].messages) unanswered.append(sequence);
  return nb::make_tuple(*dead, in_flight, unanswered);
}

void Hub::remove_dead() {
  const std::uint32_t worker = inbox_.first_dead().value();
  Port& port = workers_[worker];
  for (std::uint32_t slot : slots_.in_flight_of(worker)) slots_.orphan(slot);
  inbox_.forgo_answers(port.messages.size());
  port.messages.clear();
  inbox_.remove_dead();
}

void Hub::reopen(std::uint32_t worker) {
  workers_.reopen(worker);
  slots_.reopen(workers_[worker].first_env, workers_[worker].envs);
}

void Hub::give_up(std::uint32_t worker) {
  workers_[worker].become(PortState::kDead);
  inbox_.add_dead(worker);
}

// -- deadlines ---------------------------------------------------------------------------------------------

void Hub::find_late(Clock::time_point now) {
  if (!workers_.has_deadlines()) return;
  std::vector<std::uint64_t> tasks;
  for (std::uint32_t w = 0; w < workers_.count(); ++w) tasks.push_back(workers_[w].task());
  drain();  // after the tasks were read: a worker without one may have answered just before
  for (std::uint32_t w = 0; w < workers_.count(); ++w) {
    const auto op = workers_.late_with(w, tasks[w], oldest_op(w), now);
    if (!op) continue;
    workers_[w].become(PortState::kLate);
    inbox_.add_late({w, *op});
  }
}

Op Hub::oldest_op(std::uint32_t worker) const {
  const std::vector<std::uint32_t> slots = slots_.in_flight_of(worker);
  return slots.empty() ? Op::kMessage : slots_.last_op(slots.front());
}

void Hub::mark_corrupt(std::uint32_t worker) {
  workers_[worker].become(PortState::kCorrupt);
  inbox_.add_late({worker, std::nullopt});
}

nb::object Hub::first_late() const {
  const auto late = inbox_.first_late();
  if (!late) return nb::none();
  return nb::make_tuple(late->worker, late->op ? nb::cast(*late->op) : nb::none());
}

// -- slots whose env is gone -------------------------------------------------------------------------------

void Hub::resolve(std::uint32_t slot, Outcome outcome, nb::handle parts) {
  if (slots_.resolve(slot, outcome, parts)) push_again(slot);
}

// Whether the end of an episode that was cut off is the answer to this command.
bool Hub::deliver_end(std::uint32_t slot) {
  if (!slots_.states().is_cut_off(slot)) return false;
  const auto is_sent = slots_.deliver_end(slot, workers_.outbox().next_sequence());
  if (is_sent == true) push_again(slot);
  return is_sent.has_value();
}

}  // namespace remuda
