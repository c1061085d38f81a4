// The slots of a pool: keeps their commands and the outcomes of these commands.
//
// The ledger keeps the env that backs each slot, the states of commands and episodes, the parts into which the slots
// are divided, the last result of each env, the guards of slots, and the Python objects that belong to commands
// and results. Each event has one method, and no signal handler can run inside it. The ledger sends nothing: if a
// method returns true, its caller must send the slot's command.
//
// The slots of a vector env are neighbours and share one command. Functions that take a single slot take the first one,
// and apply to all slots of this env.
//
// No worker will answer the command of a slot that is orphaned (slots.hpp). The table in outcomes.hpp decides what
// happens to such a command. An episode that was cut off while no command was in flight ends with the answer to the
// slot's next command: `apply` notes this, and `deliver_end` gives the answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pool/slots/last_results.hpp"
#include "pool/slots/outcomes.hpp"
#include "pool/slots/parts.hpp"
#include "pool/slots/seating.hpp"
#include "pool/slots/slot_guards.hpp"
#include "pool/slots/slots.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"

namespace remuda {

// The reason why no command was sent: the first check that failed, and the slots that failed it.
struct Refusal {
  enum class Reason : std::uint8_t {
    kPart,     // The pool was split again, or closed, and this part no longer exists.
    kPending,  // A step for some slots needs a part without pending slots.
    // The argument is not a list, tuple or array of distinct slots of the part that form whole vector envs.
    kTargets,
    kMustReset,  // Some slots must be reset first.
    kLost,       // The envs of some slots are lost.
    kInFlight,   // Some slots have a command or a result already.
  };

  Reason reason;
  std::vector<std::uint32_t> slots =
      {};  // the slots that failed the check, in the order of the command; empty for kPart and kTargets
};

class SlotLedger {
 public:
  // `envs_of_worker`: the number of envs of each worker, in order.
  SlotLedger(const Arena& arena, const Plan& plan, Autoreset autoreset,
             const std::vector<std::uint32_t>& envs_of_worker, LastResults last_results);

  Slots::Slot operator[](std::uint32_t slot) const { return slots_[slot]; }
  const Slots& states() const { return slots_; }
  const Seating& seating() const { return seating_; }
  const LastResults& last_results() const { return last_results_; }
  Parts& parts() { return parts_; }
  const Parts& parts() const { return parts_; }
  const std::shared_ptr<SlotGuards>& guards() const { return guards_; }

  // See `Parts::divide`.
  std::uint32_t divide(std::vector<std::vector<std::uint32_t>> divisions, Lendings& lendings) {
    const nb::ft_lock_guard lock(division_);
    return parts_.divide(std::move(divisions), lendings);
  }
  // Any thread may call the next functions at any time. `pending` returns the number of slots of a part that have a
  // command or a result, and `ready` the number that have a result. Both return 0 if the part no longer exists.
  bool has_part(std::uint32_t number) const {
    const nb::ft_lock_guard lock(division_);
    return parts_.has(number);
  }
  std::uint32_t part_of(std::uint32_t slot) const {
    const nb::ft_lock_guard lock(division_);
    return parts_.number_of(slot);
  }
  std::vector<std::uint32_t> part_numbers() const {
    const nb::ft_lock_guard lock(division_);
    return parts_.numbers();
  }
  bool any_pending() const {
    const nb::ft_lock_guard lock(division_);
    return parts_.any_pending();
  }
  std::uint32_t pending(std::uint32_t part) const {
    const nb::ft_lock_guard lock(division_);
    return parts_.has(part) ? parts_.at(part).pending() : 0;
  }
  std::uint32_t ready(std::uint32_t part) const {
    const nb::ft_lock_guard lock(division_);
    return parts_.has(part) ? parts_.at(part).ready() : 0;
  }

  // See `Collected`.
  template <class Act>
  void each_reference(Act act) {
    for (Objects& slot : objects_)
      for (nb::object* one : {&slot.command, &slot.result, &slot.terminal, &slot.ending}) act(*one);
    for (nb::object& one : last_parts_) act(one);
  }

  // -- facts ---------------------------------------------------------------------------------------------------

  std::uint32_t env_of(std::uint32_t slot) const { return seating_.env_of(slot); }
  std::uint32_t worker_of(std::uint32_t slot) const { return workers_[env_of(slot)]; }
  std::uint32_t worker_of_env(std::uint32_t env) const { return workers_[env]; }
  // The env after the last one of the worker that hosts this env.
  std::uint32_t end_of_worker(std::uint32_t env) const { return ends_[workers_[env]]; }
  // The slot that an env backs; nullopt if the env is a spare.
  std::optional<std::uint32_t> slot_of(std::uint32_t env) const;
  // The slots of a part that are not idle, in ascending order.
  std::vector<std::uint32_t> busy_slots(std::uint32_t part) const;
  // Returns the first slots of those envs of a worker that have a command in flight.
  std::vector<std::uint32_t> in_flight_of(std::uint32_t worker) const;
  // The number of the latest command or message to the env of any of these slots.
  std::uint64_t last_sent(const std::vector<std::uint32_t>& slots) const;
  // The number of a slot's command that waits to be settled, because its env has failed; 0: there is none.
  std::uint64_t interrupted(std::uint32_t slot) const {
    return slots_[slot].state == SlotState::kOrphaned ? slots_[slot].sequence : 0;
  }
  bool is_idle(std::uint32_t slot) const { return slots_[slot].state == SlotState::kIdle; }
  bool are_ready(const std::vector<std::uint32_t>& slots) const {
    return std::all_of(slots.begin(), slots.end(), [this](auto s) { return slots_[s].state == SlotState::kReady; });
  }
  Op last_op(std::uint32_t slot) const { return slots_.op_of(slot); }
  // The row of the last action that was sent to a slot.
  std::uint32_t action_row(std::uint32_t slot) const { return slots_[slot].action_row; }
  // Returns whether the slot's env was rebuilt and has not reset since, so that it has no observation.
  bool is_fresh(std::uint32_t slot) const {
    const std::uint32_t env = env_of(slot);
    return last_results_.is_fresh(env) || load(progress_[env].is_fresh_on_shard) != 0;
  }
  // Returns whether the last result of a slot ended the episode. After a same-step autoreset, the episode is not over.
  // This function and `last` need `Plan::keeps_last`.
  bool is_over(std::uint32_t slot) const { return last_results_.is_over(env_of(slot)); }
  bool has_results(std::uint32_t slot) const { return last_results_.results(env_of(slot)) != 0; }
  // Returns whether the pool answers an observe of the slot itself, with the last observation. If the env was rebuilt
  // on a shard, the shard's pool answers, because that alone knows whether the end of the episode was reported.
  bool answers_observe(std::uint32_t slot) const { return plan_.keeps_last && last_results_.is_fresh(env_of(slot)); }
  // The last observation of a slot: (the row of the columns that keeps it, the result's data without a column | None).
  nb::tuple last(std::uint32_t slot) const;
  // `needs_reset`: whether the episode of a slot is over and the next one has not begun. `has_begun`: whether the
  // slot's last observation is the first of an episode. Both use the progress that the worker writes, which outlives
  // the worker.
  bool needs_reset(std::uint32_t slot) const;
  bool has_begun(std::uint32_t slot) const;
  // Returns (number of resets, steps since the last reset) of an env.
  nb::tuple progress(std::uint32_t env) const;
  // Returns (base, n, resets). `base`: the number of the caller's seed from which the env's seeds are derived
  // (`SeedBase.number` in Python). `n`: the number, from 0, of the latest derived seed. `resets`: the number of resets
  // since the one with this seed.
  nb::tuple seeded(std::uint32_t env) const;

  // -- commands ------------------------------------------------------------------------------------------------

  // Returns the reason why the op cannot be sent to these slots, which must be distinct slots of one part; nullopt if
  // it can.
  std::optional<Refusal> refusal(Op op, const std::vector<std::uint32_t>& targets) const;
  // Notes a command that is sent to neighbouring slots: see `Slots::send`.
  void send(std::uint32_t first, std::uint32_t count, Op op, std::uint32_t row, std::uint32_t action_row) {
    slots_.send(first, op, row, count, action_row);
    for (std::uint32_t slot = first; op == Op::kReset && slot < first + count; ++slot) guards_->note_reset(slot);
  }
  void set_action_row(std::uint32_t slot, std::uint32_t row) { slots_.set_action_row(slot, row); }
  void set_sequence(std::uint32_t first, std::uint32_t count, std::uint64_t sequence, bool is_first) {
    slots_.set_sequence(first, sequence, count, is_first);
  }
  void note_message(std::uint32_t env, std::uint64_t sequence) { last_messages_[env] = sequence; }
  void keep_command(std::uint32_t slot, nb::handle parts) { objects_[slot].command = nb::borrow(parts); }
  nb::object command_of(std::uint32_t slot) const { return none_or(objects_[slot].command); }
  // Begins a slot's next episode after the previous one has ended. Returns true if a spare must back the slot from now
  // on. The command is then a plain reset of this spare.
  bool begin_episode(std::uint32_t slot, Op op, bool has_parts);
  // Makes the spare that has waited longest back the slot. Returns the slot's previous env, which joins the end of the
  // queue.
  std::uint32_t swap_in_spare(std::uint32_t slot) { return seating_.swap_in_spare(slot); }
  // Makes env i back slot i, and queues the other envs as spares, in order. No slot may be pending.
  void seat_in_order() { seating_.seat_in_order(); }
  void set_fresh(std::uint32_t slot, bool is_fresh = true) { last_results_.set_fresh(env_of(slot), is_fresh); }
  // Notes that another env was built for the slot between two commands. The episode is over, but no result reports it.
  void note_replaced(std::uint32_t slot) {
    set_fresh(slot);
    if (plan_.keeps_last) last_results_.truncate(last_results_.row_of(env_of(slot)));
  }
  // Answers with the last observation: a repeat, or an observe of an env that was rebuilt and has not reset since.
  // `parts`: the observation's data without a column.
  void answer_observe(std::uint32_t slot, nb::handle parts);
  // Answers the slot's command with the end of its episode, which was cut off. `sequence`: the number of the command.
  // Returns whether the caller must send the slot's command; nullopt if the command is a reset, which ends the episode
  // anyway.
  std::optional<bool> deliver_end(std::uint32_t slot, std::uint64_t sequence);

  // -- results -------------------------------------------------------------------------------------------------

  // Accepts a result. `parts`: its data without a column, or null. Returns its first slot.
  std::uint32_t accept(const Result& result, nb::object parts);
  // Prepares `envs` envs, from `first_env` on, which the successor of their worker will rebuild.
  void reopen(std::uint32_t first_env, std::uint32_t envs);
  // Orphans a slot's command, because the env's worker will not answer it.
  void orphan(std::uint32_t first) {
    each(first, [this](std::uint32_t slot) { slots_.orphan(slot); });
  }
  // Returns the outcome for a slot whose env has this fate.
  Outcome outcome_of(std::uint32_t first, Fate fate) const;
  // Applies an outcome of `outcome_of` to a slot. `parts`: the data without a column, if the pool makes a row. Returns
  // whether the caller must send the slot's command.
  bool apply(std::uint32_t slot, Outcome outcome, nb::handle parts);
  // Makes the answer to the slot's next command end its episode, whose env is gone. `parts`: the answer's data without
  // a column.
  void cut_off(std::uint32_t first, nb::handle parts);
  void count_fault(std::uint32_t env) { add(figures_[env].faults, 1); }  // For statistics, see figures.hpp.
  // Removes and returns the slots that are queued for a spare and may take one now, in the order in which their
  // commands were sent.
  std::vector<std::uint32_t> take_spares_due() { return seating_.take_due(slots_.first_open_step()); }
  // Completes the slot's row with the first observation of the slot's new env, which was a spare. Returns whether the
  // env must be sent a reset for this.
  bool complete_with_spare(std::uint32_t slot);
  // Makes the failed slots of a part idle. Called after their failures were raised or dropped.
  void release_failed(std::uint32_t part) { parts_.at(part).release_failed(slots_); }
  // Returns the objects that came with these rows: {position: (flags, parts | None, terminal | None)}; null if there
  // are none. See `Hub::take`.
  nb::object extras_of(const std::vector<Run>& runs) const;
  // Makes the slots of these runs idle, and forgets their objects. `runs`: those of `Part::first_ready`, in any order.
  void take(Part& part, const std::vector<Run>& runs);
  // Notes which episodes ended with these results. Returns the slots that must now be reset in the background.
  std::vector<std::uint32_t> note_ends(const std::vector<Run>& runs);
  // Called before an idle slot gets another env. If its steps fill a rollout, its episode there ends as truncated.
  void cut_off_in_rollout(std::uint32_t slot);

 private:
  struct Objects {       // The Python objects of a slot's command and result; each may be null.
    nb::object command;  // The command's data without a column, while in flight.
    nb::object result;   // The ready result's data without a column.
    nb::object terminal,
        ending;  // such data of an episode's end: `terminal` if a reset completes its row, `ending` if not reported yet
  };

  template <class Act>
  void each(std::uint32_t first, Act act) {
    for (std::uint32_t slot = first; slot < first + plan_.width; ++slot) act(slot);
  }
  void answer(std::uint32_t first, nb::handle parts, bool ends_episode);
  bool reset_into_row(std::uint32_t first, bool is_complete, nb::handle ending);
  void await_spare(std::uint32_t slot);
  void await_reset(std::uint32_t first);
  void forget_command(std::uint32_t slot);
  void forget_result(std::uint32_t slot);

  const Plan& plan_;
  const Autoreset autoreset_;
  EnvFigures* figures_;  // `figures_`, `progress_` and `workers_` are indexed by env.
  Progress* progress_;
  std::vector<std::uint32_t> workers_;
  std::vector<std::uint32_t> ends_;  // For each worker, the env after its last one.
  Seating seating_;
  Slots slots_;
  std::vector<Objects> objects_;  // indexed by slot
  std::shared_ptr<SlotGuards> guards_;
  mutable nb::ft_mutex division_;  // guards the division into parts, which any thread may look at
  Parts parts_;
  LastResults last_results_;
  std::vector<std::uint64_t> last_messages_;  // For each env, the number of its latest message.
  // For each env, the data without a column of its last result, if the plan keeps last results.
  std::vector<nb::object> last_parts_;
};

}  // namespace remuda
