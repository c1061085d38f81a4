// The hub's dealing with what goes wrong: deaths, deadlines, and slots whose env is gone.
#include <algorithm>

#include "pool/hub/hub.hpp"

namespace remuda {

// -- deaths ------------------------------------------------------------------------------------------------

void Hub::watch(std::uint32_t worker, int pidfd, int socket) {
  watch_.set_process(worker, pidfd);
  transfers_.open(worker, socket);
}

// Looks at everything that does not ring the bell.
void Hub::poll(Clock::time_point now) {
  find_dead(now);
  find_late(now);
}

void Hub::find_dead(Clock::time_point now) {
  const std::vector<std::uint32_t> ended = watch_.look(now);
  if (ended.empty()) return;
  drain();  // what the dead still published counts
  for (std::uint32_t worker : ended) {
    watch(worker, -1, -1);
    ports_[worker].become(PortState::kDead);
    outbox_.finish_turn(worker);
    inbox_.add_dead(worker);
  }
}

// The first one of each env.
std::vector<std::uint32_t> Hub::slots_in_flight(const Port& port) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t env = port.first_env; env < port.first_env + port.envs; env += port.width) {
    const std::uint32_t slot = seating_.slot_of(env);
    if (slot != Seating::kNoSlot && slots_[slot].state == SlotState::kInFlight) slots.push_back(slot);
  }
  return slots;
}

void Hub::orphan(std::uint32_t first) {
  for (std::uint32_t slot = first; slot < first + plan_.width; ++slot) slots_.orphan(slot);
}

nb::object Hub::first_dead() const {
  const auto dead = inbox_.first_dead();
  if (!dead) return nb::none();
  const Port& port = ports_[*dead];
  nb::list in_flight, unanswered;
  for (std::uint32_t slot : slots_in_flight(port)) in_flight.append(slot);
  for (std::uint64_t sequence : port.messages) unanswered.append(sequence);
  return nb::make_tuple(*dead, in_flight, unanswered);
}

void Hub::remove_dead() {
  Port& port = ports_[inbox_.first_dead().value()];
  for (std::uint32_t slot : slots_in_flight(port)) orphan(slot);
  inbox_.forgo_answers(port.messages.size());
  port.messages.clear();
  inbox_.remove_dead();
}

void Hub::reopen(std::uint32_t worker) {
  Port& port = ports_[worker];
  port.reopen(*arena_, plan_, worker);
  transfers_.hold(worker);
  for (std::uint32_t env = port.first_env; env < port.first_env + port.envs; ++env) {
    progress_[env].results.store(last_results_.results(env), std::memory_order_relaxed);
    last_results_.set_fresh(env);
  }
}

void Hub::give_up(std::uint32_t worker) {
  ports_[worker].become(PortState::kDead);
  inbox_.add_dead(worker);
}

void Hub::arrive(std::uint32_t worker, int pidfd, int socket) {
  ports_[worker].become(PortState::kServing);
  watch(worker, pidfd, socket);
  TimeOfCall now;
  outbox_.publish(worker, now);
  transfers_.write_on();  // the messages that were held for it, after their records
}

// -- deadlines ---------------------------------------------------------------------------------------------

void Hub::set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns) {
  deadlines_.set({Nanoseconds(reset_ns), Nanoseconds(step_ns), Nanoseconds(message_ns), Nanoseconds(build_ns)});
}

// A worker is late with what it does, be it a reset in advance that nobody waits for; one that does nothing although it
// has work, with what it was given.
void Hub::find_late(Clock::time_point now) {
  if (!deadlines_.has_any()) return;
  std::vector<std::uint64_t> tasks;
  for (const Port& port : ports_) tasks.push_back(port.task());
  drain();  // after the tasks were read: who has none any more may have answered just before
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    Port& port = ports_[w];
    const bool is_busy = port.is_at(tasks[w]);
    if (port.state() != PortState::kServing || !(outbox_.has_turn(w) || is_busy)) continue;
    const Op op = is_busy ? Task::op(tasks[w]) : oldest_op(port);
    const auto begin = is_busy ? Clock::time_point(Nanoseconds(Task::begin_ns(tasks[w]))) : port.heard;
    // A message in transit waits for us, too: time in which nobody here read or wrote it is not the worker's.
    if (!deadlines_.is_over(op, std::max(begin, transfers_[w].moved()), now, clock_)) continue;
    port.become(PortState::kLate);
    inbox_.add_late({w, op});
  }
}

Op Hub::oldest_op(const Port& port) const {
  const std::vector<std::uint32_t> slots = slots_in_flight(port);
  return slots.empty() ? Op::kMessage : slots_[slots.front()].op;
}

void Hub::mark_corrupt(std::uint32_t worker) {
  ports_[worker].become(PortState::kCorrupt);
  inbox_.add_late({worker, std::nullopt});
}

nb::object Hub::first_late() const {
  const auto late = inbox_.first_late();
  if (!late) return nb::none();
  return nb::make_tuple(late->worker, late->op ? nb::cast(*late->op) : nb::none());
}

std::int64_t Hub::lost_ns() {
  clock_.look(Clock::now(), RunningClock::kUnwatched);
  return clock_.lost().count();
}

// -- what workers and envs have done -----------------------------------------------------------------------

nb::tuple Hub::doing(std::uint32_t worker) const {
  const Port& port = ports_[worker];
  const std::uint64_t task = port.task();
  const std::uint32_t env = port.meter->env.load(std::memory_order_relaxed);
  if (!port.is_at(task)) return nb::make_tuple(nb::none(), nb::none());
  return nb::make_tuple(Task::op(task), port.hosts(env) ? nb::object(nb::int_(env)) : nb::none());
}

std::uint64_t Hub::busy_since(std::uint32_t worker) const {
  const std::uint64_t task = ports_[worker].task();
  return ports_[worker].is_at(task) ? Task::begin_ns(task) : 0;
}

std::optional<std::uint32_t> Hub::slot_of(std::uint32_t env) const {
  const std::uint32_t slot = seating_.slot_of(env);
  return slot == Seating::kNoSlot ? std::nullopt : std::optional(slot);
}

nb::tuple Hub::progress(std::uint32_t env) const {
  const Progress& progress = progress_[env];
  return nb::make_tuple(progress.resets.load(std::memory_order_relaxed),
                        progress.steps.load(std::memory_order_relaxed));
}

nb::tuple Hub::seeded(std::uint32_t env) const {
  const Progress& progress = progress_[env];
  const std::uint64_t base = progress.seed_base.load(std::memory_order_acquire);
  const std::uint64_t seeded_at = progress.seeded_at.load(std::memory_order_relaxed);
  return nb::make_tuple(base, seeded_at - progress.counted_from.load(std::memory_order_relaxed),
                        progress.resets.load(std::memory_order_relaxed) - seeded_at);
}

nb::tuple Hub::last(std::uint32_t slot) const {
  const std::uint32_t env = env_of(slot);
  return nb::make_tuple(last_results_.row_of(env), none_or(last_parts_[env]));
}

// -- what becomes of slots whose env is gone ---------------------------------------------------------------

void Hub::drop(std::uint32_t slot) {
  resolution_.drop(slot);
  forget_command(slot);
}

void Hub::fail(std::uint32_t slot) {
  resolution_.fail(slot);
  forget_command(slot);
}

void Hub::forget_command(std::uint32_t slot) {
  objects_[slot].command.reset();
  objects_[slot].terminal.reset();
}

void Hub::resend(std::uint32_t slot) {
  resolution_.resend(slot);
  push_again(slot);
}

void Hub::repeat_last(std::uint32_t slot, nb::handle parts) {
  resolution_.repeat_last(slot);
  keep_result(slot, parts);
}

void Hub::end_episode(std::uint32_t slot, nb::handle parts) {
  resolution_.end_episode(slot);
  keep_result(slot, parts);
}

// Of a result that was made here.
void Hub::keep_result(std::uint32_t slot, nb::handle parts) {
  forget_command(slot);
  objects_[slot].result = nb::borrow(parts);
}

void Hub::reset_into_row(std::uint32_t slot, nb::handle terminal, bool is_complete) {
  follow(resolution_.reset_into_row(slot, is_complete), slot, terminal);
}

// What is to be done about a slot whose episode was cut off. `ending`: goes with its result.
void Hub::follow(Resolution::Next next, std::uint32_t slot, nb::handle ending) {
  if (next == Resolution::Next::kAnswered) return keep_result(slot, ending);
  objects_[slot].command.reset();
  objects_[slot].terminal = nb::borrow(ending);
  if (next == Resolution::Next::kSend) push_again(slot);
}

void Hub::defer_end(std::uint32_t slot, nb::handle ending, bool into_reset) {
  if (resolution_.defer_end(slot, into_reset)) objects_[slot].ending = nb::borrow(ending);
}

// Whether the end of an episode that was cut off is the answer to this command.
bool Hub::deliver_end(std::uint32_t slot) {
  if (!slots_.is_cut_off(slot)) return false;
  const nb::object ending = std::move(objects_[slot].ending);
  objects_[slot].ending.reset();
  const auto next = resolution_.deliver_end(slot, outbox_.next_sequence());
  if (!next) return false;
  if (autoreset_ == Autoreset::kDisabled)  // nobody does but the caller
    for (std::uint32_t each = slot; each < slot + plan_.width; ++each) obstacles_->require_reset(each);
  follow(*next, slot, ending);
  return true;
}

// An observe of what only we know.
bool Hub::answer_here(std::uint32_t slot, Op op, nb::handle parts) {
  if (op != Op::kObserve || parts.is_none()) return false;
  resolution_.answer_observe(slot);
  keep_result(slot, parts);
  return true;
}

}  // namespace remuda
