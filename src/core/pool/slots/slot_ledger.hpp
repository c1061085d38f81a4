// The slots of a pool: owns their commands and the outcomes of the commands.
//
// The ledger keeps the env that backs each slot, the states of commands and episodes, the parts that the slots are
// divided into, the last result of each env, the obstacles to sending, and the Python objects that go with commands and
// results. Each event has one method, and no signal handler can run inside it. The ledger sends nothing: if a method
// returns true, its caller must send the slot's command.
//
// The slots of a vector env are neighbours and share one command. Functions that take a single slot take the first one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pool/slots/last_results.hpp"
#include "pool/slots/obstacles.hpp"
#include "pool/slots/parts.hpp"
#include "pool/slots/refusal.hpp"
#include "pool/slots/resolution.hpp"
#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"

namespace remuda {

// The outcome of a command that no worker will answer, or of the episode of a lost env.
enum class Outcome : std::uint8_t {
  kDrop,              // no result
  kFail,              // no result: its part receives the failure
  kResend,            // the command is sent again, to the env that was rebuilt
  kRepeatLast,        // the pool answers with the last observation
  kEndEpisode,        // the pool answers with the end of the episode
  kEndAndReset,       // the pool writes the end of the episode, and the rebuilt env resets into the same row
  kReset,             // the row has the end of the episode, and the rebuilt env resets into it
  kEndLater,          // the slot is idle or ready: `kEndEpisode` answers its next step
  kEndAndResetLater,  // the slot is idle or ready: `kEndAndReset` answers its next step
};

class SlotLedger {
 public:
  // `envs_of_worker`: the number of envs of each worker, in order.
  SlotLedger(const Arena& arena, const Plan& plan, Autoreset autoreset,
             const std::vector<std::uint32_t>& envs_of_worker, LastResults last_results);
  SlotLedger(const SlotLedger&) = delete;
  SlotLedger& operator=(const SlotLedger&) = delete;

  const Slots::Slot& operator[](std::uint32_t slot) const { return slots_[slot]; }
  const Slots& states() const { return slots_; }
  const Seating& seating() const { return seating_; }
  const LastResults& last_results() const { return last_results_; }
  Parts& parts() { return parts_; }
  const Parts& parts() const { return parts_; }
  const std::shared_ptr<Obstacles>& obstacles() const { return obstacles_; }

  bool has_part(std::uint32_t number) const { return parts_.has(number); }
  std::vector<std::uint32_t> part_numbers() const { return parts_.numbers(); }
  bool any_pending() const { return parts_.any_pending(); }
  // The number of slots of a part that have a command or a result, and the number that have a result. Both return 0 if
  // the part no longer exists.
  std::uint32_t pending(std::uint32_t part) const { return has_part(part) ? parts_.at(part).pending() : 0; }
  std::uint32_t ready(std::uint32_t part) const { return has_part(part) ? parts_.at(part).ready() : 0; }

  // -- facts ---------------------------------------------------------------------------------------------------

  std::uint32_t env_of(std::uint32_t slot) const { return seating_.env_of(slot); }
  std::uint32_t worker_of(std::uint32_t slot) const { return workers_[env_of(slot)]; }
  std::uint32_t worker_of_env(std::uint32_t env) const { return workers_[env]; }
  // The slot that an env backs; empty if the env is a spare.
  std::optional<std::uint32_t> slot_of(std::uint32_t env) const;
  // The slots of a part that are not idle, in ascending order.
  std::vector<std::uint32_t> busy_slots(std::uint32_t part) const;
  // The first slot of each env of a worker that has a command in flight.
  std::vector<std::uint32_t> in_flight_of(std::uint32_t worker) const;
  // The number of the latest command or message for the env of any of these slots.
  std::uint64_t last_sent(const std::vector<std::uint32_t>& slots) const;
  bool is_idle(std::uint32_t slot) const { return slots_[slot].state == SlotState::kIdle; }
  Op last_op(std::uint32_t slot) const { return slots_[slot].op; }
  // The row of the last action that was sent to a slot.
  std::uint32_t action_row(std::uint32_t slot) const { return slots_[slot].action_row; }
  // Returns whether the env was rebuilt since its last result and has not reset yet. Such an env has no observation.
  bool is_fresh(std::uint32_t slot) const { return last_results_.is_fresh(env_of(slot)); }
  // Returns whether the last result of a slot ended the episode. After a same-step autoreset, the episode is not over.
  // Needs `Plan::keeps_last`, and so does `last`.
  bool is_over(std::uint32_t slot) const { return last_results_.is_over(env_of(slot)); }
  bool has_results(std::uint32_t slot) const { return last_results_.results(env_of(slot)) != 0; }
  // The last observation of a slot: (the row of the columns that keeps it, the parts that came with it | None).
  nb::tuple last(std::uint32_t slot) const;
  // Whether the episode of a slot is over and the next one has not begun; whether its last observation is the first of
  // an episode. Both follow the progress that the worker writes, which outlives the worker.
  bool needs_reset(std::uint32_t slot) const;
  bool has_begun(std::uint32_t slot) const;
  // (resets, steps since the last reset) of an env so far.
  nb::tuple progress(std::uint32_t env) const;
  // (base, n, resets): the number that the pool gave to the base of the env's seeds; the number of the latest seed of
  // this base, from 0; and the number of resets since.
  nb::tuple seeded(std::uint32_t env) const;

  // -- commands ------------------------------------------------------------------------------------------------

  // Returns why the op cannot be sent to these distinct slots; empty if it can.
  std::optional<Refusal> refusal(Op op, const std::vector<std::uint32_t>& targets) const;
  // Notes a command. Its result goes to the row.
  void send(std::uint32_t slot, Op op, std::uint32_t row) {
    slots_.send(slot, op, row);
    if (op == Op::kReset) obstacles_->note_reset(slot);
  }
  void set_action_row(std::uint32_t slot, std::uint32_t row) { slots_.set_action_row(slot, row); }
  void set_sequence(std::uint32_t first, std::uint32_t count, std::uint64_t sequence) {
    for (std::uint32_t slot = first; slot < first + count; ++slot) slots_.set_sequence(slot, sequence);
  }
  void note_message(std::uint32_t env, std::uint64_t sequence) { last_messages_[env] = sequence; }
  void keep_command(std::uint32_t slot, nb::handle parts) { objects_[slot].command = nb::borrow(parts); }
  nb::object command_of(std::uint32_t slot) const { return none_or(objects_[slot].command); }
  // Begins the next episode of a slot after its last one is over. Returns true if the command becomes a plain reset,
  // which the longest-waiting spare has to execute.
  bool begin_episode(std::uint32_t slot, Op op, bool has_parts);
  // Makes the longest-waiting spare back the slot. Returns the slot's previous env, which is now the last in the queue.
  std::uint32_t swap_in_spare(std::uint32_t slot) { return seating_.swap_in_spare(slot); }
  // Makes env i back slot i, and queues the spares in order. No slot may be pending.
  void seat_in_order() { seating_.seat_in_order(); }
  void set_fresh(std::uint32_t slot) { last_results_.set_fresh(env_of(slot)); }
  // Answers an observe with the last observation, which only the pool has. `parts`: the parts of this observation.
  void answer_observe(std::uint32_t slot, nb::handle parts);
  // Answers the command `sequence` with the end of an episode that was cut off. Returns whether the caller must send
  // the slot's command; None if the command is a reset, which ends the episode anyway.
  std::optional<bool> deliver_end(std::uint32_t slot, std::uint64_t sequence);

  // -- results -------------------------------------------------------------------------------------------------

  // Accepts a result, with the parts that came with it (null if there are no parts). Returns its first slot.
  std::uint32_t accept(const Result& result, nb::object parts);
  // Prepares `envs` envs from `first_env` on for the successor of their worker, which will rebuild them.
  void reopen(std::uint32_t first_env, std::uint32_t envs);
  // Orphans a command that the env's worker will not answer.
  void orphan(std::uint32_t first);
  // Ends an orphaned command. `parts`: go with the result. Returns whether the caller must send the command.
  bool resolve(std::uint32_t slot, Outcome outcome, nb::handle parts);
  void count_fault(std::uint32_t env) { add(figures_[env].faults, 1); }  // for statistics, see figures.hpp
  // The slots that are queued for a spare and may take one now, in the order of sending.
  std::vector<std::uint32_t> take_spares_due() { return seating_.take_due(slots_.first_open_step()); }
  // Lets the spare that backs a slot now reset into its row. Returns whether the caller must send the command.
  bool complete_with_spare(std::uint32_t slot);
  // Makes the failed slots of a part idle, because their failures were raised or dropped.
  void release_failed(std::uint32_t part) { parts_.at(part).release_failed(slots_); }
  // Removes the runs of up to `limit` ready slots of a part, in the order of arrival.
  std::vector<Run> take_ready(Part& part, std::uint32_t limit);
  // The objects that came with these rows: {position: (flags, parts | None, terminal | None)}; null if no row has any.
  nb::object take_extras(const std::vector<Run>& runs);
  // Notes the episodes that ended with these results. Returns the slots that reset in the background.
  std::vector<std::uint32_t> note_ends(const std::vector<Run>& runs);
  // Prepares an idle slot for another env. If its steps fill a rollout, its episode there ends truncated.
  void cut_off_in_rollout(std::uint32_t slot);

 private:
  struct Objects {       // Python objects of a slot's command and result; may be null
    nb::object command;  // parts of the command in flight
    nb::object result;   // parts of the result that is held or ready
    nb::object terminal,
        ending;  // parts of the result that a reset completes; of an end that the next result will report
  };

  void finish(std::uint32_t first, const Result& result);
  void forget_command(std::uint32_t slot);
  void keep_result(std::uint32_t slot, nb::handle parts);
  bool follow(Resolution::Next next, std::uint32_t slot, nb::handle ending);

  const Plan& plan_;
  const Autoreset autoreset_;
  EnvFigures* figures_;                 // by env
  Progress* progress_;                  // by env
  std::vector<std::uint32_t> workers_;  // by env
  Seating seating_;
  Slots slots_;
  std::vector<Objects> objects_;  // by slot
  std::shared_ptr<Obstacles> obstacles_;
  Parts parts_;
  LastResults last_results_;
  std::vector<std::uint64_t> last_messages_;  // by env: the number of its latest message
  std::vector<nb::object> last_parts_;        // by env: the parts of its last result, with `keeps_last`
  Resolution resolution_;
};

}  // namespace remuda
