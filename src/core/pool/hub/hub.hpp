// The pool's end of the protocol: sends commands to the workers, and gathers their results into batches.
//
// One call at a time enters the hub, see `Entrance`.  The hub handles slots, envs, rows and records; its Python owner
// decides what a message or a failure means.
//
// A slot is a place in the batch, and a worker hosts envs.  The slots are divided into parts, which are sent and
// received apart from each other: one part unless the pool is `split`.
//
// The hub passes things on between:
//
//   SlotLedger   what each slot was sent, and its outcome    Workers       rings, sockets, processes, deadlines
//   Actions      actions of callers, as columns              FrameTaker    batches, and their frames
//   Inbox        what Python has to decide on                PoolBell      the wait for results
//   Rollout      many steps as one array                     CallerMeter   where the caller's time goes
//   Callbacks    functions of the pool in Python             Entrance      calls in the middle of others
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/time_of_call.hpp"
#include "pool/actions/actions.hpp"
#include "pool/batches/batch.hpp"
#include "pool/batches/frame_taker.hpp"
#include "pool/batches/lendings.hpp"
#include "pool/batches/lent_frames.hpp"
#include "pool/hub/callbacks.hpp"
#include "pool/hub/caller_meter.hpp"
#include "pool/hub/entrance.hpp"
#include "pool/hub/inbox.hpp"
#include "pool/rollouts/rollout_store.hpp"
#include "pool/rollouts/rollout_views.hpp"
#include "pool/slots/refusal.hpp"
#include "pool/slots/slot_ledger.hpp"
#include "pool/tracing/tracing.hpp"
#include "pool/workers/pool_bell.hpp"
#include "pool/workers/workers.hpp"
#include "shm/columns.hpp"
#include "shm/plan.hpp"

namespace remuda {

class Hub {
 public:
  // `envs_of_worker[w]`: how many envs worker w hosts; they are dealt out in order, the spares last.
  // `queues`: see `Mail`.  `columns`: reward, terminated, truncated, info mask, then the observation's leaves;
  // `computed`: the caller's own.
  // `max_running`: how many workers may have commands at once; the
  // others' wait here for their turn. `spin_ns`, `spins_heedlessly`: see `SpinPolicy`; `one_sleeps`: whether one of the
  // workers is to leave its core to the caller.
  Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
      std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> computed, Actions actions,
      const nb::sequence& queues, std::int64_t spin_ns, std::uint32_t max_running, bool one_sleeps,
      bool spins_heedlessly);

  // Divides the slots into parts, while nothing is pending.  `parts`: the slots of each; every slot is in one.  Returns
  // the number of the first; the others' follow.  No number is given twice, so earlier numbers are no longer valid.
  // Until then all slots are part 0.
  std::uint32_t split(std::vector<std::vector<std::uint32_t>> parts);
  bool has_part(std::uint32_t number) const { return slots_.has_part(number); }
  // The slots of a part: an array of int64 that cannot be written to.
  nb::object env_ids(std::uint32_t part) const { return part_objects_.at(slots_.parts().index(part)).env_ids; }
  // Batches are objects of `type`, `Batch` or a subclass, which refer to `source`.  `look`: see `Callbacks`.
  // `obs_is_array`: an observation is its one leaf; else `type` builds it.
  void set_batches(nb::object type, nb::object source, nb::object look, bool obs_is_array);

  SlotLedger& slots() { return slots_; }
  Workers& workers() { return workers_; }
  FrameTaker& frames() { return frame_taker_; }
  Callbacks& callbacks() { return callbacks_; }
  CallerMeter& caller() { return caller_meter_; }
  Entrance& entrance() { return entrance_; }
  // Calls a function of the pool that decides on events.
  nb::object deal(nb::handle function) { return function(); }

  // -- rollouts --------------------------------------------------------------------------------------

  // Steps of so many parts from this one on, of which nothing is pending, fill a rollout from now on, each slot so many
  // times, or until they are sent a reset.  First they are to be sent an observe.  What has no column is put into
  // `extras`, as `take` has it, by row.  Returns the lease.  Throws std::system_error when there is no memory.
  nb::object begin_rollout(std::uint32_t first_part, std::uint32_t parts, std::uint32_t steps, nb::object extras);
  // Steps of a part fill this rollout no more.  Returns whether results that fill it are still to come.
  bool end_rollout(std::uint32_t part, const RolloutViews& rollout);
  // How many bytes the next one, of so many rows, has to reserve.
  std::uint64_t bytes_for_rollout(std::uint32_t rows) const { return rollout_store_->bytes_to_reserve(rows); }

  // -- out -------------------------------------------------------------------------------------------

  // One command for each of `slots`: a list, tuple or array of ints, or None for all of the part.  `actions`: of a
  // step, see `Actions::take_apart`, which raises for actions that do not fit.  `blobs`: None, or one list of parts (or
  // None) per env.  All is checked before the first command is sent.  Returns the first check that failed, if any did.
  std::optional<Refusal> send(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t part);
  // A whole step in one call: `send`, then `receive` for all of them, in the order of `slots`.  A refusal, where
  // nothing was sent; None, where `receive` has none.  Nothing else may be pending where slots are named.
  nb::object step(nb::handle actions, nb::handle slots, std::uint32_t part);
  // Sends a message (or kClose) to `worker` concerning `env`; returns the number that its answer will carry, under
  // which `addressee` is put into the dict `addressees`, unless that is None.
  std::uint64_t post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                             nb::handle addressee);

  // -- in --------------------------------------------------------------------------------------------

  // Waits until `wanted` slots of a part are done (ready or failed), or somebody needs attention (an answer to a
  // message, a dead worker, words from the relay), or `timeout_ns` (negative: none) is over.  Sleeps
  // without the GIL; lets signal handlers run.  True when `wanted` slots are done.  No part: there are none to wait
  // for.
  bool wait(std::uint32_t wanted, std::int64_t timeout_ns, std::optional<std::uint32_t> part);

  // Waits until so many pending slots of a part are done (0: all of them), and takes what is there.  None when anything
  // is out of the ordinary: nothing is pending, somebody needs attention, or is to be told of a fault, or has said what
  // was not heard.  Then nothing was taken.
  nb::object receive(std::uint32_t wanted, std::uint32_t part);
  // Removes up to `limit` ready slots of a part, the first to arrive, and returns a batch of them: in that order, or by
  // slot, or in the order of `slots`, which are those (else None).  See `Batch` for what it has, and for
  // it `extras`: {position: (flags, parts | None, terminal | None)} of the envs with a final observation or a blob, by
  // their first rows; terminal: what `reset_into_row` was given.
  // With background autoreset the slots whose episode is over are told to reset, and are pending again.
  // `pad_to` (0: none): the batch has so many rows, which `make_padding` has made room for.
  nb::object take(std::uint32_t limit, bool by_slot, nb::handle slots, std::uint32_t part, std::uint32_t pad_to);
  void make_padding(std::uint32_t rows) { frame_taker_.make_padding(rows); }
  // Removes all ready results of a part, and forgets its failures.
  void drop_ready(std::uint32_t part);

  // -- what goes wrong ---------------------------------------------------------------------------------

  // The first event that Python has to decide on: a `Message`, then a `LateWorker`, then a `DeadWorker`; or None.  An
  // event stays until it is removed, because whatever decides on it may be interrupted, and then begins again.  So it
  // is removed together with all other changes, see `call_all`.
  //
  // The slot of a failure, or of a result that waits for a renewal, is orphaned.  A late worker is reported once, a
  // dead one again if it is sent something.  With the event of a dead worker, its slots are orphaned.
  nb::object first_event() const;
  void remove_event();
  // The failures of a part were raised: its failed slots are no longer pending.
  void release_failed(std::uint32_t part) {
    if (has_part(part)) slots_.release_failed(part);
  }
  // Ends an orphaned command, see `Outcome`.  `parts` is handed out with the result.
  void resolve(std::uint32_t slot, Outcome outcome, nb::handle parts);

  // For a successor of a dead worker: its port is as new, and what is sent waits there until it `arrives`.
  void reopen(std::uint32_t worker);
  // There will be none: it counts as dead from now on.
  void give_up(std::uint32_t worker);

  // Something that `wait` does not hand over by itself: answers, failures, deaths, words from the relay.
  bool needs_attention() const { return inbox_.has_faults() || attention(); }
  // From now on what happens is noted there; null: no more.
  void set_trace(std::shared_ptr<TraceLog> log) { tracing_.set_log(std::move(log)); }

  // Shows Python's garbage collector the objects that may refer to the hub.
  int visit(visitproc visit, void* arg) const {
    Py_VISIT(frame_taker_.source().ptr());
    for (const PartObjects& one : part_objects_) Py_VISIT(one.extras.ptr());
    if (const int found = entrance_.visit(visit, arg)) return found;
    return callbacks_.visit(visit, arg);
  }
  void clear() {
    callbacks_.clear();
    entrance_.clear();
    frame_taker_.set_source({}, false);
    for (PartObjects& one : part_objects_) one.extras.reset();
  }

  // Throws std::system_error when there is no memory for it.
  void add_info_column(Column column);

 private:
  using Arrival = Mail::Arrival;
  struct PartObjects {
    nb::object env_ids;        // its slots
    LentFrames lent = {};      // its frames that are
    nb::object lease, extras;  // of its rollout; null: there is none
  };

  std::vector<RolloutStore::Rows> rows_of_rollouts() const;
  void lend_columns();

  PartObjects& objects_of_part(std::uint32_t number) { return part_objects_[slots_.parts().index(number)]; }
  std::optional<Refusal> send_to(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t number,
                                 std::vector<std::uint32_t>& some, TimeOfCall& now);
  bool read_targets(nb::handle slots, std::uint32_t number, std::vector<std::uint32_t>& targets) const;
  void dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part, TimeOfCall& now);
  std::size_t end_of_run(const std::vector<std::uint32_t>& targets, std::size_t first) const;
  std::vector<std::uint32_t> rows_in_rollout(Op op, const std::vector<std::uint32_t>& targets, Part& part);
  void send_run(Op op, std::uint32_t first, std::uint32_t count, nb::object parts);
  void swap_in_spare(std::uint32_t slot);
  void push_run(Op op, std::uint32_t first, std::uint32_t count, nb::handle parts);
  void push_again(std::uint32_t slot);
  std::uint64_t push_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts);
  void push(std::uint32_t worker, const Command& command, nb::handle parts);

  bool wait_from(Clock::time_point start, std::uint32_t wanted, std::int64_t timeout_ns,
                 std::optional<std::uint32_t> number);
  nb::object receive_from(TimeOfCall& now, std::uint32_t wanted, std::uint32_t number,
                          const std::vector<std::uint32_t>& order);
  nb::object take_rows(std::uint32_t limit, bool by_slot, const std::vector<std::uint32_t>& order, std::uint32_t number,
                       std::uint32_t pad_to = 0);
  nb::object hand_over(nb::object batch, bool has_new_keys);
  bool sleep(std::uint32_t target, Nanoseconds limit, Clock::time_point& now);
  void drain();
  bool accept(std::uint32_t worker, const Result& result);
  Arrival read(std::uint32_t worker, const Result& result, nb::object& parts);
  void accept_rows(std::uint32_t worker, const Result& result, nb::object parts);
  void serve_spares();
  void tell(Message message);
  bool attention() const { return inbox_.has_others() || workers_.has_news(); }
  void note_filled(std::uint32_t number, const std::vector<Run>& runs, nb::handle extras);
  void keep_last_actions(const std::vector<std::uint32_t>& slots);
  void end_rollout_of(std::uint32_t number);
  void forget_rollout(std::uint32_t number);

  void poll(Clock::time_point now);
  void find_dead(Clock::time_point now);
  void find_late(Clock::time_point now);
  void mark_corrupt(std::uint32_t worker);
  void remove_message();
  void remove_dead();
  Op oldest_op(std::uint32_t worker) const;
  bool deliver_end(std::uint32_t slot);

  Entrance entrance_;
  std::shared_ptr<Arena> arena_;
  const Plan plan_;
  std::shared_ptr<Lendings> lendings_;
  SlotLedger slots_;
  std::vector<PartObjects> part_objects_;  // by their order
  Workers workers_;
  PoolBell bell_;
  Inbox inbox_;
  Actions actions_;
  FrameTaker frame_taker_;
  std::shared_ptr<RolloutStore> rollout_store_;
  Callbacks callbacks_;
  CallerMeter caller_meter_;
  Tracing tracing_;
};

}  // namespace remuda
