// The hub's view of what goes wrong: deaths and deadlines, and slots whose env is gone.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "pool/hub.hpp"

namespace remuda {

namespace {

// Of `columns_`, which have no room for infos: the first leaf of the observation.
constexpr std::size_t kFirstOfBatch = kFirstLeaf - 1;

}  // namespace

// -- deaths ------------------------------------------------------------------------------------------

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
    watch_.set_process(worker, -1);
    transfers_.end(worker);
    ports_[worker].dead = true;
    finish_turn(worker);
    newly_dead_.push_back(worker);
  }
}

nb::object Hub::first_dead() const {
  if (newly_dead_.empty()) return nb::none();
  const Port& port = ports_[newly_dead_.front()];
  nb::list in_flight, unanswered;
  for (std::uint32_t env = port.first_env; env < port.first_env + port.envs; ++env) {
    const std::uint32_t slot = seating_.slot_of(env);
    if (slot != kNoSlot && slots_[slot].state == SlotState::kInFlight) in_flight.append(slot);
  }
  for (std::uint64_t sequence : port.messages) unanswered.append(sequence);
  return nb::make_tuple(newly_dead_.front(), in_flight, unanswered);
}

void Hub::remove_dead() {
  Port& port = ports_[newly_dead_.front()];
  for (std::uint32_t env = port.first_env; env < port.first_env + port.envs; ++env) {
    const std::uint32_t slot = seating_.slot_of(env);
    if (slot != kNoSlot && slots_[slot].state == SlotState::kInFlight) slots_[slot].state = SlotState::kOrphaned;
  }
  awaited_ -= static_cast<std::uint32_t>(port.messages.size());
  port.messages.clear();
  newly_dead_.pop_front();
}

// -- deadlines ---------------------------------------------------------------------------------------

void Hub::set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns) {
  deadlines_.set({Nanoseconds(reset_ns), Nanoseconds(step_ns), Nanoseconds(message_ns), Nanoseconds(build_ns)});
}

// A worker is late with what it does, be it a reset in advance that nobody waits for; one that does nothing although it
// has work, with what it was given.
void Hub::find_late(Clock::time_point now) {
  if (!deadlines_.has_any()) return;
  std::vector<std::uint64_t> tasks;
  for (const Port& port : ports_) tasks.push_back(port.meter->task.load(std::memory_order_acquire));
  drain();  // after the tasks were read: who has none any more may have answered just before
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    Port& port = ports_[w];
    const bool is_busy = Task::is_sound(tasks[w]) && !Task::is_over(tasks[w], port.last_end_ns);
    if (port.dead || port.absent || port.late || !(turns_.has(w) || is_busy)) continue;
    const Op op = is_busy ? Task::op(tasks[w]) : oldest_op(port);
    const auto begin = is_busy ? Clock::time_point(Nanoseconds(Task::begin_ns(tasks[w]))) : port.heard;
    // A message in transit waits for us, too: time in which nobody here read or wrote it is not the worker's.
    if (!deadlines_.is_over(op, std::max(begin, transfers_.moved(w)), now, clock_)) continue;
    port.late = true;
    newly_late_.emplace_back(w, op);
  }
}

std::int64_t Hub::lost_ns() {
  clock_.look(Clock::now(), RunningClock::kUnwatched);
  return clock_.lost().count();
}

Op Hub::oldest_op(const Port& port) const {
  for (std::uint32_t env = port.first_env; env < port.first_env + port.envs; ++env) {
    const std::uint32_t slot = seating_.slot_of(env);
    if (slot != kNoSlot && slots_[slot].state == SlotState::kInFlight) return slots_[slot].op;
  }
  return Op::kMessage;
}

nb::object Hub::first_late() const {
  if (newly_late_.empty()) return nb::none();
  const auto& [worker, op] = newly_late_.front();
  return nb::make_tuple(worker, op ? nb::cast(*op) : nb::none());
}

nb::tuple Hub::doing(std::uint32_t worker) const {
  const Port& port = ports_[worker];
  const Meter& meter = *port.meter;
  const std::uint64_t task = meter.task.load(std::memory_order_acquire);
  const std::uint32_t env = meter.env.load(std::memory_order_relaxed);
  if (!Task::is_sound(task) || Task::is_over(task, port.last_end_ns)) return nb::make_tuple(nb::none(), nb::none());
  const bool is_ours = env >= port.first_env && env - port.first_env < port.envs;
  return nb::make_tuple(Task::op(task), is_ours ? nb::object(nb::int_(env)) : nb::none());
}

std::optional<std::uint32_t> Hub::slot_of(std::uint32_t env) const {
  const std::uint32_t slot = seating_.slot_of(env);
  return slot == kNoSlot ? std::nullopt : std::optional(slot);
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

// Nothing more is read from it.
void Hub::mark_corrupt(std::uint32_t worker) {
  ports_[worker].corrupt = true;
  newly_late_.emplace_back(worker, std::nullopt);
}

// A worker can write anything into its rings; what we act upon is checked.
bool Hub::is_sound(const Port& port, const Result& result) const {
  const std::uint32_t first = port.first_env, end = port.first_env + port.envs;
  if (result.count != 1 && (result.count == 0 || result.flags != 0)) return false;
  if (result.flags & kIsMessage)
    return std::find(port.messages.begin(), port.messages.end(), result.sequence) != port.messages.end();
  if (result.env < first || result.env >= end || result.count > end - result.env) return false;
  if (!is_next_of_vector(port, result)) return false;
  const std::uint32_t first_slot = seating_.slot_of(result.env);
  if (first_slot == kNoSlot || ((result.flags & kHasSpares) && !seating_.has_spares())) return false;
  for (std::uint32_t i = 0; i < result.count; ++i) {
    if (seating_.slot_of(result.env + i) != first_slot + i) return false;
    const Slot& slot = slots_[first_slot + i];
    if (slot.state != SlotState::kInFlight || slot.row != result.row + i) return false;
  }
  return true;
}

// Whether it follows what is held: whole vector envs come between others, their sub-envs in order.
bool Hub::is_next_of_vector(const Port& port, const Result& result) const {
  if (is_whole(width_, result)) return port.held.empty();
  if (result.env % width_ != port.held_sub_envs || result.count > width_ - port.held_sub_envs) return false;
  return port.held.empty() || may_share_run(width_, port.held.back().first, result);
}

// -- what becomes of slots whose env is gone -----------------------------------------------------------

Hub::Slot& Hub::orphaned(std::uint32_t slot) {
  if (slots_[slot].state != SlotState::kOrphaned) throw std::logic_error("the slot is not orphaned");
  return slots_[slot];
}

void Hub::drop(std::uint32_t slot) {
  Slot& dropped = orphaned(slot);
  dropped.state = SlotState::kIdle;
  dropped.parts.reset();
  --part_of(slot).in_flight;
  rows_done(part_of(slot), dropped.row, 1);
}

void Hub::resend(std::uint32_t slot) {
  Slot& again = orphaned(slot);
  again.state = SlotState::kInFlight;
  push_run(again.op, slot, 1, none_or(again.parts));
  publish(worker_of(slot));
  raise_interrupt();
}

void Hub::repeat_last(std::uint32_t slot, nb::handle parts) {
  Slot& told = orphaned(slot);
  Part& part = part_of(slot);
  copy_row(columns_, kFirstOfBatch, told.row, kept_row(slot));
  set_flags(told.row, false);
  *reinterpret_cast<std::uint64_t*>(columns_[kInfoMask].row(told.row)) = 0;
  told.state = SlotState::kReady;
  told.parts.reset();
  --part.in_flight;
  ++part.ready_slots;
  part.ready.push_back({slot, told.row, 1, kHasBlob, nb::borrow(parts)});
}

void Hub::end_episode(std::uint32_t slot, nb::handle parts) {
  repeat_last(slot, parts);
  env_behind(slot).fresh = true;
  set_flags(slots_[slot].row, true);
  set_flags(kept_row(slot), true);
}

// An observe of what only we know.
bool Hub::answer_here(std::uint32_t slot, Op op, nb::handle parts) {
  if (op != Op::kObserve || parts.is_none()) return false;
  slots_[slot].state = SlotState::kOrphaned;
  repeat_last(slot, parts);
  return true;
}

void Hub::await_spare(std::uint32_t slot, nb::object terminal) {
  slots_[slot].state = SlotState::kDue;
  slots_[slot].terminal = std::move(terminal);
  seating_.ask_for_spare(slot, slots_[slot].sequence);
}

void Hub::reset_into_row(std::uint32_t slot, nb::handle terminal, bool is_complete) {
  Slot& fresh_slot = orphaned(slot);
  if (!is_complete) {
    copy_row(final_columns_, 0, fresh_slot.row, kept_row(slot));
    set_flags(fresh_slot.row, true);
    env_behind(slot).fresh = true;
    if (seating_.has_spares()) return await_spare(slot, nb::borrow(terminal));  // nobody waits for the env built anew
  }
  fresh_slot.op = Op::kResetIntoRow;
  fresh_slot.parts.reset();
  fresh_slot.terminal = nb::borrow(terminal);
  resend(slot);
}

void Hub::defer_end(std::uint32_t slot, nb::handle ending, bool revives) {
  deferred_ += !slots_[slot].deferred.is_valid();
  slots_[slot].deferred = nb::borrow(ending);
  slots_[slot].deferred_as_reset = revives;
}

// Whether the debt is the answer to this command. A reset ends the episode anyway.
bool Hub::deliver_deferred(std::uint32_t slot, Op op) {
  Slot& deferrer = slots_[slot];
  if (!deferrer.deferred.is_valid()) return false;
  nb::object ending = std::move(deferrer.deferred);
  deferrer.deferred.reset();
  --deferred_;
  if (op == Op::kReset) return false;
  deferrer.state = SlotState::kOrphaned;
  deferrer.sequence = ++sequence_;  // it was sent now, though nobody is told
  deferrer.deferred_as_reset ? reset_into_row(slot, ending, false) : end_episode(slot, ending);
  return true;
}

// The observation's leaves of `columns_` at `from_row`, to the columns from `first_to` on.
void Hub::copy_row(const std::vector<Column>& to, std::size_t first_to, std::uint32_t to_row, std::uint32_t from_row) {
  for (std::size_t leaf = 0; kFirstOfBatch + leaf < columns_.size(); ++leaf) {
    const Column& from = columns_[kFirstOfBatch + leaf];
    std::memcpy(to[first_to + leaf].row(to_row), from.row(from_row), from.row_bytes());
  }
}

// Of a result made here: there is no reward in it, and no terminal state.
void Hub::set_flags(std::uint32_t row, bool truncated) {
  *reinterpret_cast<double*>(columns_[kReward].row(row)) = 0.0;
  *reinterpret_cast<bool*>(columns_[kTerminated].row(row)) = false;
  *reinterpret_cast<bool*>(columns_[kTruncated].row(row)) = truncated;
}

nb::tuple Hub::last(std::uint32_t slot) const {
  return nb::make_tuple(kept_row(slot), none_or(env_behind(slot).last_parts));
}

bool Hub::is_over(std::uint32_t slot) const {
  const std::uint32_t kept = kept_row(slot);
  return *reinterpret_cast<const bool*>(columns_[kTerminated].row(kept)) ||
         *reinterpret_cast<const bool*>(columns_[kTruncated].row(kept));
}

void Hub::reopen(std::uint32_t worker) {
  for (std::uint64_t ring : {plan_.commands(worker), plan_.results(worker)}) arena_->at<RingHeader>(ring)->reset();
  for (std::uint64_t blobs : {plan_.blobs_in(worker), plan_.blobs_out(worker)})
    arena_->at<BlobHeader>(blobs)->consumed.store(0);
  Port fresh = make_port(worker);  // its ends begin where the rings do
  fresh.first_env = ports_[worker].first_env;
  fresh.envs = ports_[worker].envs;
  fresh.absent = true;
  fresh.bell->sleeping.store(0);  // its predecessor may have died in its sleep
  fresh.meter->task.store(0);
  for (std::uint32_t env = fresh.first_env; env < fresh.first_env + fresh.envs; ++env) {
    progress_[env].results.store(envs_[env].results, std::memory_order_relaxed);
    envs_[env].fresh = true;
  }
  ports_[worker] = std::move(fresh);
  watch(worker, -1, -1);
}

void Hub::give_up(std::uint32_t worker) {
  ports_[worker].dead = true;
  newly_dead_.push_back(worker);
}

void Hub::arrive(std::uint32_t worker, int pidfd, int socket) {
  ports_[worker].absent = false;
  watch(worker, pidfd, socket);
  transfers_.note(worker, Way::kWrite, socket >= 0);  // what was kept for it, if anything
  publish(worker);
}

}  // namespace remuda
