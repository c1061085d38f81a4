// The pool's end of the protocol: sends commands to the workers, and gathers their results into batches.
//
// Only one call at a time enters the hub, see `HubLock`. The hub handles slots, envs, rows and records. Its Python
// owner decides on messages and failures.
//
// A slot is a place in the batch, and a worker hosts envs. The slots are divided into parts. Callers send to and
// receive from each part independently. The pool has one part unless it is `split`.
//
// The hub connects these classes:
//
//   SlotLedger   the commands of the slots, and their outcomes   Workers       rings, sockets, processes, deadlines
//   Actions      the actions of callers, as columns              FrameTaker    batches, and their frames
//   Inbox        the events that Python must decide on           PoolBell      the wait for results
//   Rollout      many steps as one array                         CallerMeter   statistics of the caller's time
//   Callbacks    the pool's functions in Python                  HubLock       one call, and one thread, at a time
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/clock.hpp"
#include "pool/actions/actions.hpp"
#include "pool/batches/batch.hpp"
#include "pool/batches/frame_taker.hpp"
#include "pool/batches/lendings.hpp"
#include "pool/batches/lent_frames.hpp"
#include "pool/hub/caller_meter.hpp"
#include "pool/hub/emission.hpp"
#include "pool/hub/hub_lock.hpp"
#include "pool/hub/inbox.hpp"
#include "pool/rollouts/rollout_store.hpp"
#include "pool/rollouts/rollout_views.hpp"
#include "pool/slots/slot_ledger.hpp"
#include "pool/tracing/trace_log.hpp"
#include "pool/workers/pool_bell.hpp"
#include "pool/workers/workers.hpp"
#include "shm/columns.hpp"
#include "shm/plan.hpp"

namespace remuda {

// The type of the pool's batches, and the Python functions of the pool that the hub calls. They may refer to the hub.
struct Callbacks {
  // Called before each wait, if the workers have no thread or process on this machine. It runs the workers' commands in
  // the caller's thread, or checks the connection to other machines. Null if the workers have a thread or process here.
  nb::object pump;
  // Called as soon as commands were sent, to wake the thread that passes them on to other machines. A function in C, so
  // that no signal handler interrupts it. Null if the workers are on this machine.
  nb::object pass_on;
  // Emits log records. Called before a wait for results ends, if there may be some that belong before these. It runs
  // code of the program. Null if the pool has no supervisor yet.
  nb::object log;
  // Makes the data without a column of a row that no worker makes: (slot, infos | None, is_terminal) -> parts. `infos`:
  // those of the env's slots. `is_terminal`: the row has the terminal observation, and a reset completes it; otherwise
  // the row repeats the last observation.
  nb::object make_rows;
  nb::object look;            // Called with each batch with infos that could get a column, and with batch `look_at`.
  std::uint64_t look_at = 0;  // The number of a batch, counted from 1.
  nb::object batch_type;
};

class Hub {
 public:
  // `envs_of_worker`: the number of envs of each worker, in order; the spares come last. `columns`: reward, terminated,
  // truncated, info mask, then the leaves of the observation. `final_columns`: the leaves of terminal observations.
  // `computed`: the columns that the user's functions compute. `queues`: see `Mail`. `spin_ns`, `ignore_load`: see
  // `SpinPolicy`. `max_running`: the number of workers that may have commands at once; commands for the others wait in
  // the hub. `one_sleeps`: whether one of the workers must leave its core to the caller.
  Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
      std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> computed, Actions actions,
      const nb::sequence& queues, std::int64_t spin_ns, std::uint32_t max_running, bool one_sleeps, bool ignore_load);

  // Divides the slots into parts. No slot may be pending. `parts`: the slots of each part; every slot must be in one of
  // them. Returns the number of the first part; the other parts have the following numbers. No number is used twice, so
  // the numbers of earlier parts become invalid. Before the first split, all slots are in part 0.
  std::uint32_t split(std::vector<std::vector<std::uint32_t>> parts);
  bool has_part(std::uint32_t number) const { return slots_.has_part(number); }
  // The slots of a part, as a read-only array of int64.
  nb::object env_ids(std::uint32_t part) const { return part_objects_.at(slots_.parts().index(part)).env_ids; }
  // Sets the type of the batches (`Batch` or a subclass) and the `source` to which they refer. `look`: see `Callbacks`.
  // `obs_is_array`: whether an observation is one array. If not, `type` builds it from several leaves.
  void set_batches(nb::object type, nb::object source, nb::object look, bool obs_is_array);

  SlotLedger& slots() { return slots_; }
  Workers& workers() { return workers_; }
  FrameTaker& frames() { return frame_taker_; }
  Callbacks& callbacks() { return callbacks_; }
  CallerMeter& caller() { return caller_meter_; }
  HubLock& lock() { return lock_; }
  // Calls a Python function that calls the hub. Calls for other parts enter only while the function sleeps. nullopt, or
  // a part that exists no longer: no other thread may be in a call.
  nb::object in_turn(nb::handle function, HubLock::PartNumber) { return function(); }
  // Calls a Python function that waits for other threads, which may enter meanwhile.
  nb::object in_absence(nb::handle function);
  // Calls a Python function with which the supervisor decides on events. Then callers wake up. If the function returns
  // True, there are log records, and the next wait that ends calls `Callbacks::log`.
  void decide(nb::handle function);
  // For a decision. Accepts results, checks for ended and late workers, and returns the list of events to decide on:
  // each is a `Message`, a `LateWorker` or an `EndedWorker`, in this order. So the earlier messages of a worker are
  // decided before its end. `end` must follow for each ended worker. A slot that failed, or with an incomplete result
  // because a renewal is due, is orphaned already (slots.hpp). A late worker is reported once. A dead worker is
  // reported again if it is sent another command.
  nb::list take_events();
  // Calls `Callbacks::log`, unless another thread does so. `is_apart`: this thread does nothing else, so calls of the
  // pool in its log handlers wait for their turn, and refuse no other calls.
  void log(bool is_apart);
  // Emits the log records that belong before the results and answers so far. Returns whether there may have been some.
  // Meanwhile the state of the hub may have changed.
  bool log_news();
  // Notes that `Callbacks::log` has emitted one record.
  void note_logged() { emission_.progress(); }

  // -- rollouts --------------------------------------------------------------------------------------

  // Makes steps fill a new rollout, in `parts` parts from `first_part` on. Each slot fills it with `steps` steps, or
  // until a reset is sent. No slot of the parts may be pending, and the first command after this call must be an
  // observe. Objects without a column are put into `extras`, by row, in the format of `take`. Returns the RolloutViews.
  // Throws std::system_error if memory runs out.
  nb::object begin_rollout(std::uint32_t first_part, std::uint32_t parts, std::uint32_t steps, nb::object extras);
  // Makes further steps of a part fill frames again. Returns whether results that fill the rollout are still pending.
  bool end_rollout(const RolloutViews& rollout, std::uint32_t part);
  // The number of bytes that a further rollout of this number of rows would reserve.
  std::uint64_t bytes_for_rollout(std::uint32_t rows) const { return rollout_store_->bytes_to_reserve(rows); }

  // -- sending ---------------------------------------------------------------------------------------

  // Sends one command to each of `slots`: a list, tuple or array of ints, or None for the whole part. `actions`: for a
  // step only; `Actions::take_apart` raises for actions that do not fit. `blobs`: None, or a list with the
  // pickled data of each env, or None for an env without any. All checks precede the first command. If a check fails,
  // nothing is sent, and the Refusal is returned.
  std::optional<Refusal> send(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t part);
  // Makes a whole step: calls `send`, then `receive`, for all of `slots`. The batch has the order of `slots`. Unless
  // `slots` is None, no slot of the part may be pending before. Returns a batch; the Refusal if nothing was sent; or
  // None if `receive` returns None.
  nb::object step(nb::handle actions, nb::handle slots, std::uint32_t part);
  // Sends a message (or kClose) for `env` to `worker`. Returns the sequence number that the answer will have. If
  // `addressees` is not None, it is a dict, and `addressee` is stored in it under this number.
  std::uint64_t post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                             nb::handle addressee);

  // -- receiving -------------------------------------------------------------------------------------

  // Waits until one of three things happens: `wanted` slots of a part are done (ready or failed); the loss of an env
  // must be raised; or `timeout_ns` has passed (negative: no timeout). Sleeps without the GIL and lets signal handlers
  // run. Returns true if `wanted` slots are done. If `part` is nullopt, waits for the next decision of the supervisor.
  bool wait(std::uint32_t wanted, std::int64_t timeout_ns, std::optional<std::uint32_t> part);

  // Waits until `wanted` pending slots of a part are done (0: all), and takes a batch of the ready slots. Returns None
  // and takes nothing if no slot is pending, or if a fault must be raised.
  nb::object receive(std::uint32_t wanted, std::uint32_t part);
  // Removes up to `limit` ready slots of a part, in the order of arrival, and returns them as a batch. If `by_slot`,
  // the batch is sorted by slot. `slots`, unless None, names the ready slots and sets their order. The batch's `extras`
  // is {position: (flags, parts | None, terminal | None)}, for envs with a final observation or a blob. `position` is
  // the env's first row, `parts` the result's data without a column, and `terminal` such data of the episode's end if a
  // reset completed the row. With background autoreset, slots that have ended an episode are sent a reset, and are
  // pending again.
  nb::object take(std::uint32_t limit, bool by_slot, nb::handle slots, std::uint32_t part);
  // Discards all ready results and failures of a part.
  void drop_ready(std::uint32_t part);

  // -- faults ------------------------------------------------------------------------------------------

  // Makes the failed slots of a part idle. Called after their failures were raised.
  void release_failed(std::uint32_t part) {
    if (has_part(part)) slots_.release_failed(part);
  }
  // Applies the outcome (outcomes.hpp) for a slot whose env has this fate: to its command, which no worker will answer,
  // or to its episode, which was cut off. `data`: for kFailed and kReported, the infos of the slots; for kEnded, the
  // data without a column of the row.
  void settle(std::uint32_t slot, Fate fate, nb::object data);

  // Marks a worker as dead, because its process has ended, or because it will have no successor. Orphans the commands
  // that it has not answered. Called again if a dead worker was sent another command.
  DeadWorker end(std::uint32_t worker);
  // Prepares the port of a dead worker for its successor. New commands wait in the port until the successor has built
  // its envs.
  void reopen(std::uint32_t worker);
  // Ends all workers and drops all commands, because a decision has failed. Returns the sequences of the messages that
  // get no answer.
  std::vector<std::uint64_t> break_all();

  // Calls `Callbacks::pass_on` if there are new commands. Called before each wait, and at the end of each call of the
  // hub that is not kWithin (see `HubLock`).
  void pass_on();

  // Makes `log` record further events; null ends the trace.
  void set_trace(std::shared_ptr<TraceLog> log) { tracing_.set_log(std::move(log)); }

  // See `Collected`. Not visited are numbers, arrays, and objects that batches share, such as the reader of infos.
  template <class Act>
  void each_reference(Act act) {
    for (nb::object* one : {&callbacks_.pump, &callbacks_.pass_on, &callbacks_.log, &callbacks_.make_rows,
                            &callbacks_.look, &callbacks_.batch_type, &frame_taker_.source(), &actions_.converter()})
      act(*one);
    for (PartObjects& one : part_objects_) act(one.extras);
    slots_.each_reference(act);
    inbox_.each_reference(act);
    workers_.mail().each_reference(act);
  }

  // Adds a column of infos, with memory for the held rollouts. Throws std::system_error if memory runs out.
  void add_info_column(Column column);

 private:
  struct PartObjects {
    nb::object env_ids;    // The slots of the part.
    LentFrames lent = {};  // The frames of the part that are lent.
    // The lease of the part's rollout, and the objects of its rows without a column; both are null without a rollout.
    nb::object lease, extras;
  };

  std::vector<RolloutStore::Rows> lend_columns();

  PartObjects& objects_of_part(std::uint32_t number) { return part_objects_[slots_.parts().index(number)]; }
  std::optional<Refusal> send_to(Op op, nb::handle slots, nb::handle actions, nb::handle blobs, std::uint32_t number,
                                 std::vector<std::uint32_t>& some, TimeOfCall& now);
  bool read_targets(nb::handle slots, std::uint32_t number, std::vector<std::uint32_t>& targets) const;
  void dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part, TimeOfCall& now);
  std::size_t end_of_run(const std::vector<std::uint32_t>& targets, std::size_t first, bool ascend,
                         const std::vector<std::uint32_t>& theirs) const;
  nb::object known_rows(Op op, std::vector<std::uint32_t> targets);
  void send_run(Op op, std::uint32_t first, std::uint32_t count, nb::object parts);
  void swap_in_spare(std::uint32_t slot);
  void push_run(Op op, std::uint32_t first, std::uint32_t count, nb::handle parts, bool is_first);
  void push_again(std::uint32_t slot);
  std::uint64_t push_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts);
  void push(std::uint32_t worker, const Command& command, nb::handle parts);

  bool wait_from(Clock::time_point start, std::uint32_t wanted, std::int64_t timeout_ns,
                 std::optional<std::uint32_t> number);
  nb::object receive_from(TimeOfCall& now, std::uint32_t wanted, std::uint32_t number,
                          const std::vector<std::uint32_t>& order);
  nb::object take_rows(std::uint32_t limit, bool by_slot, const std::vector<std::uint32_t>& order,
                       std::uint32_t number);
  void sleep(std::uint32_t heard, std::uint32_t needed, Nanoseconds limit, Clock::time_point& now);
  void drain();
  bool accept(std::uint32_t worker, const Result& result);
  void serve_spares();
  void note_filled(std::uint32_t number, const std::vector<Run>& runs, nb::handle extras);
  void keep_last_actions(const std::vector<std::uint32_t>& slots);
  void end_rollout_of(std::uint32_t number);
  void forget_rollout(std::uint32_t number);

  void find_late(Clock::time_point now);
  void wake_callers() {
    if (const std::uint32_t needed = sleeps_for_) bell_.wake(needed);
  }

  HubLock lock_;
  Emission emission_;
  // The number of results for which a thread sleeps on the bell, and the number of other threads that wait until it has
  // woken up. Both are 0 if there are none. A thread may change them without the turn when it has woken up.
  std::atomic<std::uint32_t> sleeps_for_{0}, followers_{0};
  std::uint64_t decisions_ = 0;  // the number of calls of `decide`
  bool is_undecided_ = false;    // whether a failure or a renewal that is due has arrived after the last decision
  // `faults_`: the number of decisions with log records. `logged_`: that number, and below it that of workers' records,
  // before a call of `Callbacks::log` that has returned. `log_news` may use them without the turn, and without a GIL.
  std::atomic<std::uint32_t> faults_{0};
  std::atomic<std::uint64_t> logged_{0};
  std::shared_ptr<Arena> arena_;
  const Plan plan_;
  std::shared_ptr<Lendings> lendings_;
  std::shared_ptr<BatchColumns> columns_;
  SlotLedger slots_;
  std::vector<PartObjects> part_objects_;  // one entry for each part, in order
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
