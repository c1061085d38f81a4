// The slots of a pool: the one owner of their commands, and of the outcomes of these.
//
// It keeps which env backs a slot, the states of commands and episodes, the parts that the slots are divided into, the
// last result of each env, what keeps a slot from being sent a command, and the Python objects that go with commands
// and results.  Each event has one method, in which no signal handler can run.  It sends nothing itself: if a method
// returns true, its caller must send the slot's command.
//
// Slots that one env backs are neighbours and share the fate of their command; the first of them stands for all.
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

// The end of a command that no worker will answer, or of an episode of a lost env.
enum class Outcome : std::uint8_t {
  kDrop,              // it has no result
  kFail,              // it has no result: its part receives the failure
  kResend,            // it is sent again, to the env that was rebuilt
  kRepeatLast,        // the pool answers it with the last observation
  kEndEpisode,        // the pool answers it with the end of the episode
  kEndAndReset,       // the pool writes the end of the episode, and the rebuilt env resets into the same row
  kReset,             // the row has the end of the episode, and the rebuilt env resets into it
  kEndLater,          // the slot is idle or ready: its next step is answered by `kEndEpisode`
  kEndAndResetLater,  // the same by `kEndAndReset`
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
  // The number of slots of a part that have a command or a result, and of those that have a result; 0 if the part is
  // gone.
  std::uint32_t pending(std::uint32_t part) const { return has_part(part) ? parts_.at(part).pending() : 0; }
  std::uint32_t ready(std::uint32_t part) const { return has_part(part) ? parts_.at(part).ready() : 0; }

  // -- facts ---------------------------------------------------------------------------------------------------

  std::uint32_t env_of(std::uint32_t slot) const { return seating_.env_of(slot); }
  std::uint32_t worker_of(std::uint32_t slot) const { return workers_[env_of(slot)]; }
  std::uint32_t worker_of_env(std::uint32_t env) const { return workers_[env]; }
  // The slot that an env backs; none if the env is a spare.
  std::optional<std::uint32_t> slot_of(std::uint32_t env) const;
  // The slots of a part that are not idle, in its order.
  std::vector<std::uint32_t> busy_slots(std::uint32_t part) const;
  // The first slot of each env of a worker that has a command in flight.
  std::vector<std::uint32_t> in_flight_of(std::uint32_t worker) const;
  // The number of the latest command or message for the env of any of these slots.
  std::uint64_t last_sent(const std::vector<std::uint32_t>& slots) const;
  bool is_idle(std::uint32_t slot) const { return slots_[slot].state == SlotState::kIdle; }
  Op last_op(std::uint32_t slot) const { return slots_[slot].op; }
  // The row of the action that a slot was sent last.
  std::uint32_t action_row(std::uint32_t slot) const { return slots_[slot].action_row; }
  // Whether the env was rebuilt since its last result and has not reset yet.  It has no observation to show.
  bool is_fresh(std::uint32_t slot) const { return last_results_.is_fresh(env_of(slot)); }
  // Whether the last result of a slot ended the episode, and no same-step autoreset began the next one.  With
  // `keeps_last` only, as `last`.
  bool is_over(std::uint32_t slot) const { return last_results_.is_over(env_of(slot)); }
  bool has_results(std::uint32_t slot) const { return last_results_.results(env_of(slot)) != 0; }
  // The last observation of a slot: (the row of the columns where it is kept, the parts that came with it | None).
  nb::tuple last(std::uint32_t slot) const;
  // Whether the episode of a slot is over, and the next one has not begun; whether its last observation is the first of
  // an episode.  As its worker has it, or had.
  bool needs_reset(std::uint32_t slot) const;
  bool has_begun(std::uint32_t slot) const;
  // (resets, steps since the last one) of an env so far.
  nb::tuple progress(std::uint32_t env) const;
  // (base, n, resets): the base that the seeds of an env are derived from, by the pool's count; the number of the
  // latest of these seeds, from 0; and how many resets came after that.
  nb::tuple seeded(std::uint32_t env) const;

  // -- what is sent --------------------------------------------------------------------------------------------

  // Returns why distinct slots cannot be sent the op; none if they can.
  std::optional<Refusal> refusal(Op op, const std::vector<std::uint32_t>& targets) const;
  // Notes a command of which the result goes to the row.
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
  // The command begins the next episode of a slot whose last one is over.  Returns true if it is to be a plain reset,
  // of the spare that has waited longest.
  bool begin_episode(std::uint32_t slot, Op op, bool has_parts);
  // The env of a slot changes places with that spare.  Returns the env, which is the last spare now.
  std::uint32_t swap_in_spare(std::uint32_t slot) { return seating_.swap_in_spare(slot); }
  // Slot i is backed by env i again, and the spares wait in order.  No slot is pending.
  void seat_in_order() { seating_.seat_in_order(); }
  void set_fresh(std::uint32_t slot) { last_results_.set_fresh(env_of(slot)); }
  // Answers an observe of what the pool alone has.
  void answer_observe(std::uint32_t slot, nb::handle parts);
  // Answers the command `sequence` with the end of an episode that was cut off.  None if the command is a reset, which
  // ends the episode anyway; else returns whether the caller must send the command.
  std::optional<bool> deliver_end(std::uint32_t slot, std::uint64_t sequence);

  // -- what has come -------------------------------------------------------------------------------------------

  // Takes in a result, with the parts that came with it (null: none).  Returns its first slot.
  std::uint32_t accept(const Result& result, nb::object parts);
  // A successor of their worker will rebuild so many envs, from this one on.
  void reopen(std::uint32_t first_env, std::uint32_t envs);
  // The worker of the env will not answer the command.
  void orphan(std::uint32_t first);
  // Ends an orphaned command.  `parts`: go with the result.  Returns whether the caller must send the command.
  bool resolve(std::uint32_t slot, Outcome outcome, nb::handle parts);
  void count_fault(std::uint32_t env) { add(figures_[env].faults, 1); }  // for statistics, see figures.hpp
  // The slots that wait for a spare and may take one now, in the order of sending.
  std::vector<std::uint32_t> take_spares_due() { return seating_.take_due(slots_.first_open_step()); }
  // The spare that backs a slot now resets into its row.  Returns whether the caller must send the command.
  bool complete_with_spare(std::uint32_t slot);
  // The failed slots of a part are idle from now on: their failures were raised, or dropped.
  void release_failed(std::uint32_t part) { parts_.at(part).release_failed(slots_); }
  // Removes the runs of up to `limit` ready slots of a part, the first to arrive.
  std::vector<Run> take_ready(Part& part, std::uint32_t limit);
  // The objects that came with some of the rows: {position: (flags, parts | None, terminal | None)}; null if none did.
  nb::object take_extras(const std::vector<Run>& runs);
  // Notes the episodes that ended with these results.  Returns the slots that reset in the background.
  std::vector<std::uint32_t> note_ends(const std::vector<Run>& runs);
  // An idle slot gets another env: if its steps fill a rollout, its episode in the rollout ends truncated.
  void cut_off_in_rollout(std::uint32_t slot);

 private:
  struct Objects {       // of Python's, that go with a slot's command and its result; may be null
    nb::object command;  // parts of the command in flight
    nb::object result;   // parts of the result that is held, or ready
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
  std::vector<std::uint64_t> last_messages_;  // by env: the number of the latest
  std::vector<nb::object> last_parts_;        // by env: of its last result, if observations have parts without a column
  Resolution resolution_;
};

}  // namespace remuda
