#include "pool/slots/slot_ledger.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace remuda {

SlotLedger::SlotLedger(const Arena& arena, const Plan& plan, Autoreset autoreset,
                       const std::vector<std::uint32_t>& envs_of_worker, LastResults last_results)
    : plan_(plan),
      autoreset_(autoreset),
      figures_(arena.at<EnvFigures>(plan.env_figures)),
      progress_(arena.at<Progress>(plan.progress)),
      seating_(plan.slots, plan.envs),
      slots_(plan.slots),
      objects_(plan.slots),
      guards_(std::make_shared<SlotGuards>(plan.slots, plan.envs)),
      parts_(slots_, plan.frames),
      last_results_(std::move(last_results)),
      last_messages_(plan.envs),
      last_parts_(plan.envs) {
  for (std::uint32_t w = 0; w < plan.workers; ++w) {
    workers_.insert(workers_.end(), envs_of_worker[w], w);
    ends_.push_back(static_cast<std::uint32_t>(workers_.size()));
  }
}

std::optional<std::uint32_t> SlotLedger::slot_of(std::uint32_t env) const {
  const std::uint32_t slot = seating_.slot_of(env);
  return slot == Seating::kNoSlot ? std::nullopt : std::optional(slot);
}

std::vector<std::uint32_t> SlotLedger::in_flight_of(std::uint32_t worker) const {
  std::vector<std::uint32_t> slots;
  const auto first = std::find(workers_.begin(), workers_.end(), worker);
  for (auto it = first; it != workers_.end() && *it == worker; it += plan_.width) {
    const auto slot = slot_of(static_cast<std::uint32_t>(it - workers_.begin()));
    if (slot && slots_[*slot].state == SlotState::kInFlight) slots.push_back(*slot);
  }
  return slots;
}

std::uint64_t SlotLedger::last_sent(const std::vector<std::uint32_t>& slots) const {
  std::uint64_t last = 0;
  for (std::uint32_t slot : slots) last = std::max({last, slots_[slot].sequence, last_messages_[env_of(slot)]});
  return last;
}

nb::tuple SlotLedger::last(std::uint32_t slot) const {
  const std::uint32_t env = env_of(slot);
  return nb::make_tuple(last_results_.row_of(env), none_or(last_parts_[env]));
}

// If the plan keeps last results, also considers results that the pool made. The worker's progress does not include
// these.
bool SlotLedger::needs_reset(std::uint32_t slot) const {
  if (plan_.keeps_last && last_results_.is_over(env_of(slot))) return true;
  return load(progress_[env_of(slot)].needs_reset) != 0;
}

bool SlotLedger::has_begun(std::uint32_t slot) const {
  return !needs_reset(slot) && load(progress_[env_of(slot)].steps) == 0;
}

nb::tuple SlotLedger::progress(std::uint32_t env) const {
  return nb::make_tuple(load(progress_[env].resets), load(progress_[env].steps));
}

nb::tuple SlotLedger::seeded(std::uint32_t env) const {
  const Progress& progress = progress_[env];
  const std::uint64_t base = progress.seed_base.load(std::memory_order_acquire);
  const std::uint64_t seeded_at = load(progress.seeded_at);
  return nb::make_tuple(base, seeded_at - load(progress.counted_from), load(progress.resets) - seeded_at);
}

std::vector<std::uint32_t> SlotLedger::busy_slots(std::uint32_t part) const {
  std::vector<std::uint32_t> busy;
  const std::vector<std::uint32_t>& slots = parts_.at(part).slots();
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(busy), [this](auto slot) { return !is_idle(slot); });
  return busy;
}

std::optional<Refusal> SlotLedger::refusal(Op op, const std::vector<std::uint32_t>& targets) const {
  const auto because = [&targets](Refusal::Reason reason, auto fails) -> std::optional<Refusal> {
    Refusal refusal{reason};
    std::copy_if(targets.begin(), targets.end(), std::back_inserter(refusal.slots), fails);
    return refusal.slots.empty() ? std::nullopt : std::optional(std::move(refusal));
  };
  std::optional<Refusal> refusal;
  if (op != Op::kReset && guards_->any_must_reset())
    refusal =
        because(Refusal::Reason::kMustReset, [this, op](auto slot) { return guards_->must_reset_before(op, slot); });
  if (!refusal && guards_->any_lost())
    refusal = because(Refusal::Reason::kLost, [this](auto slot) { return guards_->is_lost(env_of(slot)); });
  if (!refusal && !targets.empty() && parts_.of(targets[0]).pending() != 0)
    refusal = because(Refusal::Reason::kInFlight, [this](auto slot) { return !is_idle(slot); });
  return refusal;
}

bool SlotLedger::begin_episode(std::uint32_t slot, Op op, bool has_parts) {
  if (op == Op::kObserve || op == Op::kRepeat) return false;
  slots_.go_on(slot);
  // A reset with a seed or options is for the env that backs the slot now, so no spare can replace it.
  const bool is_plain = op == Op::kStep ? autoreset_ == Autoreset::kNextStep : !has_parts;
  if (!seating_.has_spares() || !is_plain) return false;
  slots_.set_op(slot, Op::kReset);
  return true;
}

void SlotLedger::answer_observe(std::uint32_t slot, nb::handle parts) {
  orphan(slot);
  answer(slot, parts, false);
}

std::optional<bool> SlotLedger::deliver_end(std::uint32_t first, std::uint64_t sequence) {
  const nb::object ending = std::exchange(objects_[first].ending, nb::object());
  each(first, [this](std::uint32_t slot) { slots_.go_on(slot); });
  if (slots_[first].op == Op::kReset) return std::nullopt;
  each(first, [this, sequence](std::uint32_t slot) {
    slots_.orphan(slot);
    slots_.set_sequence(slot, sequence);  // The pool answers the command itself, so the command counts as sent now.
  });
  if (autoreset_ == Autoreset::kSameStep) return reset_into_row(first, false, ending);
  answer(first, ending, true);
  await_reset(first);
  return false;
}

std::uint32_t SlotLedger::accept(const Result& result, nb::object parts) {
  const std::uint32_t first = seating_.slot_of(result.env);
  const bool failed = result.flags & kIsFailure, ends = result.flags & kHasFinal;
  // With same-step autoreset, a result that ends an episode includes the reset after it. The result is still incomplete
  // if a spare or a rebuilt env must make this reset.
  if (ends && (result.flags & kHasSpares) && !failed && !(result.flags & kUndone)) {
    await_spare(first);
    objects_[first].terminal = std::move(parts);
  } else if (failed || (result.flags & kUndone) || (ends && (result.flags & kRenewalDue))) {
    orphan(first);
  } else {
    slots_.finish(first, result.count);
    // An observe repeats the last result. All slots of a run have the same command.
    if (slots_.op_of(first) != Op::kObserve) last_results_.count(result.env, result.count);
    if (plan_.keeps_last) last_parts_[result.env] = parts;
    objects_[first].result = std::move(parts);
    objects_[first].command = nb::object();
    parts_.of(first).finish({first, result.row, result.count, result.flags & ~(kRenewalDue | kGrown)});
  }
  return first;
}

void SlotLedger::reopen(std::uint32_t first_env, std::uint32_t envs) {
  for (std::uint32_t env = first_env; env < first_env + envs; ++env) {
    progress_[env].results.store(last_results_.results(env), std::memory_order_relaxed);
    last_results_.set_fresh(env);
  }
}

Outcome SlotLedger::outcome_of(std::uint32_t first, Fate fate) const {
  // A vector env's successor begins again with all of its slots. So if one episode was cut off, all were, even those
  // that had just ended. An env without a result gets a step only if it succeeds one whose episode is over.
  bool is_over = plan_.keeps_last;
  for (std::uint32_t slot = first; is_over && slot < first + plan_.width; ++slot)
    is_over = !has_results(slot) || last_results_.is_over(env_of(slot));
  const Slots::Slot slot = slots_[first];
  const auto op = slot.state == SlotState::kOrphaned ? std::optional(slot.op) : std::nullopt;
  return remuda::outcome_of(fate, {op, has_results(first), is_over}, autoreset_);
}

bool SlotLedger::apply(std::uint32_t first, Outcome outcome, nb::handle parts) {
  switch (outcome) {
    case Outcome::kNothing:
      return false;
    case Outcome::kAwaitReset:
      await_reset(first);
      return false;
    case Outcome::kDrop:
    case Outcome::kFail:
      each(first, [this, fails = outcome == Outcome::kFail](std::uint32_t slot) {
        fails ? slots_.fail(slot) : slots_.drop(slot);
        fails ? parts_.of(slot).fail(slots_[slot].row) : parts_.of(slot).drop(slots_[slot].row);
      });
      forget_command(first);
      return false;
    case Outcome::kResend:
      each(first, [this](std::uint32_t slot) { slots_.resend(slot); });
      return true;
    case Outcome::kRepeatLast:
    case Outcome::kEndEpisode:
      answer(first, parts, outcome == Outcome::kEndEpisode);
      if (outcome == Outcome::kEndEpisode || last_results_.is_over(env_of(first))) await_reset(first);
      return false;
    case Outcome::kEndAndReset:
    case Outcome::kReset:
      return reset_into_row(first, outcome == Outcome::kReset, parts);
    case Outcome::kEndLater:
    case Outcome::kEndAndResetLater:
      // The episode of a slot that waits for a spare has ended already.
      if (slots_[first].state != SlotState::kAwaitingSpare) cut_off(first, parts);
      return false;
  }
  return false;
}

void SlotLedger::cut_off(std::uint32_t first, nb::handle parts) {
  each(first, [this](std::uint32_t slot) { slots_.cut_off(slot); });
  objects_[first].ending = nb::borrow(parts);
}

// Without autoreset, refuses steps of a slot whose episode was ended by a fault until the caller resets it. It can be
// observed, because the pool repeats its last observation.
void SlotLedger::await_reset(std::uint32_t first) {
  if (autoreset_ != Autoreset::kDisabled) return;
  each(first, [this](std::uint32_t slot) { guards_->require_reset(slot, true); });
}

bool SlotLedger::complete_with_spare(std::uint32_t slot) {
  slots_.orphan(slot);
  return reset_into_row(slot, true, nb::object(objects_[slot].terminal));
}

// Answers an orphaned command with a result that the pool makes: the last observation again, or the end of the episode.
// `parts`: the result's data without a column.
void SlotLedger::answer(std::uint32_t first, nb::handle parts, bool ends_episode) {
  each(first, [=, this](std::uint32_t slot) {
    slots_.answer(slot);
    if (ends_episode)
      last_results_.end_episode(env_of(slot), slots_[slot].row);
    else
      last_results_.repeat(env_of(slot), slots_[slot].row);
  });
  parts_.of(first).finish({first, slots_[first].row, plan_.width, kHasBlob});
  forget_command(first);
  objects_[first].result = nb::borrow(parts);
}

// Makes one result of the end of an orphaned command's episode and of the next episode's first observation.
// `is_complete`: the row already has its reward, flags and terminal observation; otherwise this function writes them.
// Then, if the pool has spares, one of them resets into the row, because rebuilding the failed env would take longer.
// `ending`: the data without a column of the end. Returns whether the caller must send the reset.
bool SlotLedger::reset_into_row(std::uint32_t first, bool is_complete, nb::handle ending) {
  objects_[first].command = nb::object();
  objects_[first].terminal = nb::borrow(ending);
  if (!is_complete) {
    each(first, [this](std::uint32_t slot) { last_results_.end_before_reset(env_of(slot), slots_[slot].row); });
    if (seating_.has_spares()) {
      await_spare(first);
      return false;
    }
  }
  each(first, [this](std::uint32_t slot) {
    slots_.resend(slot);
    slots_.set_op(slot, Op::kResetIntoRow);
  });
  return true;
}

// Queues a slot that is in flight or orphaned for a spare, which will complete its row. Only for envs of width 1,
// because vector envs have no spares.
void SlotLedger::await_spare(std::uint32_t slot) {
  slots_.await_spare(slot);
  seating_.ask_for_spare(slot, slots_[slot].order);
}

void SlotLedger::forget_command(std::uint32_t slot) {
  objects_[slot].command = nb::object();
  objects_[slot].terminal = nb::object();
}

void SlotLedger::forget_result(std::uint32_t slot) {
  objects_[slot].result = nb::object();
  objects_[slot].terminal = nb::object();
}

nb::object SlotLedger::extras_of(const std::vector<Run>& runs) const {
  nb::object extras;
  std::size_t position = 0;
  for (const Run& run : runs) {
    const Objects& objects = objects_[run.slot];
    if (run.flags != 0) {
      if (!extras.is_valid()) extras = nb::dict();
      nb::borrow<nb::dict>(extras)[nb::int_(position)] =
          nb::make_tuple(run.flags, none_or(objects.result), none_or(objects.terminal));
    }
    position += run.count;
  }
  return extras;
}

void SlotLedger::take(Part& part, const std::vector<Run>& runs) {
  std::uint32_t count = 0;
  for (const Run& run : runs) {
    slots_.take(run.slot, run.count);
    forget_result(run.slot);
    count += run.count;
  }
  part.remove_ready(count);
}

std::vector<std::uint32_t> SlotLedger::note_ends(const std::vector<Run>& runs) {
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

// Marks the slot's last result in the rollout as truncated. If the episode was cut off before, does nothing, because
// the slot's next result ends the episode.
void SlotLedger::cut_off_in_rollout(std::uint32_t slot) {
  const std::shared_ptr<Rollout>& rollout = parts_.of(slot).rollout();
  const std::uint32_t position = slots_[slot].position;
  if (!rollout || !rollout->wants(Op::kStep, position) || slots_.is_cut_off(slot)) return;
  const std::uint32_t row = rollout->next_row(position) - rollout->width();
  if (!last_results_.ends_episode(row)) last_results_.truncate(row);
}

}  // namespace remuda
