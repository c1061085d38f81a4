// The pool's end of the protocol: hands commands to the workers, gathers their results into batches.
//
// One thread at a time may call it.  It knows slots, envs, rows and records; what a message or a failure
// means is its Python owner's business.
//
// A slot is a place in the batch, an env is what a worker hosts; which backs which, `Seating` says.
//
// The slots are divided into parts, which are sent and received apart from each other: one part unless it is `split`.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pool/deadlines.hpp"
#include "pool/frames.hpp"
#include "pool/lendings.hpp"
#include "pool/seating.hpp"
#include "pool/transfers.hpp"
#include "pool/turns.hpp"
#include "pool/watch.hpp"
#include "shm/columns.hpp"
#include "shm/plan.hpp"

namespace remuda {

inline nb::object none_or(nb::object object) { return object.is_valid() ? object : nb::object(nb::none()); }

class Hub {
 public:
  // `envs_of_worker[w]`: how many envs worker w hosts; they are dealt out in order, the spares last.
  // `receive(w) -> (parts, take) | None (it died) | False (nonsense) | True (some of it is still to come)` reads from
  // worker w's socket the message that is the next one until `take()`, a function in C, `send(w, parts) -> whether some
  // of it is still to be written` writes to it, and `send(w, None)` goes on with that; neither waits. `columns`:
  // reward, terminated, truncated, info mask, then the observation's leaves. `max_running`: how many workers may have
  // commands at once; the others' wait here for their turn. `width`: so many neighbouring envs are one vector env (1:
  // each is one of its own), and every call concerns whole ones.
  Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> envs_of_worker, Autoreset autoreset,
      std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> actions, nb::object receive,
      nb::object send, std::int64_t spin_ns, std::uint32_t max_running, std::uint32_t width);

  // Divides the slots anew, while nothing is pending.  `parts`: the slots of each; every slot is in one.
  void split(std::vector<std::vector<std::uint32_t>> parts);

  // -- out -------------------------------------------------------------------------------------------

  // One command for each of `slots` (None: all of the part).  `actions`: one array per action column, with a row
  // per slot, dtype and layout as the column's; `blobs`: None, or one list of parts (or None) per slot.
  // All slots are checked before the first command is sent; raises ValueError naming a slot in flight.
  void send(Op op, nb::handle slots, nb::list actions, nb::handle blobs, std::uint32_t part);
  // The short way of `send` for a step of all slots of a part, or of those in an array of int64: true when `actions` is
  // an array that fits the only action column as it is, every number within `set_choices`, and the slots are distinct
  // and none of them is pending; else nothing was sent.
  bool send_steps(nb::handle actions, nb::handle slots, std::uint32_t part);
  void set_choices(npy_int64 low, npy_int64 high) { choices_ = {low, high}; }
  // Sends a message (or kClose) to `worker` concerning `env`; returns the number its answer will carry, under which
  // `addressee` is put into the dict `addressees`, unless that is None.
  std::uint64_t post_message(Op op, std::uint32_t worker, std::uint32_t env, nb::handle parts, nb::handle addressees,
                             nb::handle addressee);
  // Slot i is backed by env i again, and the spares wait in order.  No slot is pending.
  void seat_in_order() { seating_.seat_in_order(); }

  // -- in --------------------------------------------------------------------------------------------

  // Waits until `wanted` slots of a part are done (ready or failed), or somebody needs attention (an answer to a
  // message, a dead worker, words from the relay), or `timeout_ns` (negative: none) is over.  Sleeps
  // without the GIL; lets signal handlers run.  True when `wanted` slots are done.
  bool wait(std::uint32_t wanted, std::int64_t timeout_ns, std::uint32_t part);

  // Removes up to `limit` ready slots of a part, the first to arrive, in that order or by slot, and returns
  //   (slots | None, columns, final_columns | None, info_columns | None, extras | None)
  // slots: an int64 array, or None for a whole frame, which is in slot order.  The three lists hold an array for
  // each column, views of a leased frame where possible, else copies.  final_columns: None when no row
  // has a final observation; info_columns: None when no row has an info in a column.
  // extras: {position: (flags, parts | None, terminal | None)} of the rows with a final observation or a blob;
  // terminal: what `reset_into_row` was given.
  // With background autoreset the slots whose episode is over are told to reset, and are pending again.
  nb::tuple take(std::uint32_t limit, bool by_slot, std::uint32_t part);
  // `wait` for so many pending slots of a part (0: all), then `take` what is there; None when anything is out of the
  // ordinary, or has been said that was not heard.
  std::optional<nb::tuple> finish(std::uint32_t wanted, std::uint32_t part);
  // Removes everything ready of a part without looking at it.
  void drop_ready(std::uint32_t part);

  // -- what goes wrong ---------------------------------------------------------------------------------

  // What has to be dealt with comes one by one, and stays until it is removed: whoever deals with it may be
  // interrupted, and then begins with it again.  It is removed together with whatever else he changes, see `call_all`.
  //
  // The first of the answers to messages, the failures and the due renewals, or None:
  // (worker, slot | None, sequence, flags, parts).  The slot of a failure, or of a result that waits for a
  // renewal, is orphaned.
  nb::object first_message() const;
  void remove_message();
  // Watches a process: `wait` notices its death, and when its socket (-1: it has none) is ready for the rest of a
  // message.  The descriptors stay the caller's.
  void watch(std::uint32_t worker, int pidfd, int socket);
  // Looks at this descriptor too, for good: what workers log comes there.  It stays the caller's.
  void relay(int fd) { watch_.set_relay(fd); }
  // What the workers have logged and warned is handed on before the results of what they said it in: how often they
  // have spoken so far, whether that is more than was heard, and up to which of these the caller has.
  std::uint32_t said() const { return words_->said.load(std::memory_order_relaxed); }
  bool has_unheard() const { return said() != heard_; }
  void note_heard(std::uint32_t said) { heard_ = said; }
  // The first worker that was found dead, or None: (worker, [slots in flight], [sequences of messages without an
  // answer]).  Who is sent something when dead is found once more.
  nb::object first_dead() const;
  void remove_dead();  // its slots are orphaned from then on
  // Makes `wait` return when one of these descriptors becomes readable, or at that time (CLOCK_MONOTONIC, ns; 0:
  // never).  Both stay in force until they are replaced; what was news until now is none any more.
  void listen(std::vector<int> fds, std::int64_t alarm_ns) {
    watch_.listen(std::move(fds), Clock::time_point(Nanoseconds(alarm_ns)));
  }
  bool has_news() const { return watch_.has_news(); }
  void raise_news() { watch_.raise_news(); }  // until the next `listen`
  // Nanoseconds that an env may take for a reset, a step, a message; 0: any time.
  void set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns);
  // The first worker that was found late (worker, op), or whose results make no sense (worker, None); or None.  Each is
  // told once.
  nb::object first_late() const;
  void remove_late() { newly_late_.pop_front(); }
  // What a worker does, or did when it died: (op | None, env | None).
  nb::tuple doing(std::uint32_t worker) const;
  // (resets, steps since the last one) of an env so far.
  nb::tuple progress(std::uint32_t env) const;
  // (base, n, resets): which base the seeds of an env are derived from, by the pool's count; that the latest was the
  // n-th, from 0; and how many resets came after that.
  nb::tuple seeded(std::uint32_t env) const;
  // Who backs a slot, whose worker that is, and which slot an env backs, if any.
  std::uint32_t env_of(std::uint32_t slot) const { return seating_.env_of(slot); }
  std::uint32_t worker_of(std::uint32_t slot) const { return env_behind(slot).worker; }
  std::optional<std::uint32_t> slot_of(std::uint32_t env) const;
  // The row of a slot's action.
  std::uint32_t action_row(std::uint32_t slot) const { return slots_[slot].position; }
  // The op that a slot was sent last.
  Op last_op(std::uint32_t slot) const { return slots_[slot].op; }

  // An orphaned slot is pending, without a command: one of these ends that.
  void drop(std::uint32_t slot);    // it has no result
  void resend(std::uint32_t slot);  // its command once more
  // A result made here: the last observation once more, reward 0.  `parts` is handed out with it.
  void repeat_last(std::uint32_t slot, nb::handle parts);
  void end_episode(std::uint32_t slot, nb::handle parts);  // the same, truncated
  // Its env resets, and the row is the end of an episode; `terminal` is handed out with it.  `is_complete`:
  // reward, flags and terminal observation are in the row; else they are written as `end_episode` does.
  void reset_into_row(std::uint32_t slot, nb::handle terminal, bool is_complete);
  // An idle slot whose episode was cut off: its next step or observe is answered by `end_episode`, or by
  // `reset_into_row`.
  void defer_end(std::uint32_t slot, nb::handle ending, bool revives);
  bool is_deferred(std::uint32_t slot) const { return slots_[slot].deferred.is_valid(); }
  // Whether its env was built anew since its last result and has not reset yet, so that it knows of no observation: an
  // observe is answered by `repeat_last`, with the parts it was sent with.
  bool is_fresh(std::uint32_t slot) const { return env_behind(slot).fresh; }

  // The last observation of a slot: (the row of the columns where it is kept, the parts that came with it | None).
  // With `keeps_last` only, as what follows.
  nb::tuple last(std::uint32_t slot) const;
  // Whether its last result ended the episode (and no same-step autoreset began the next one).
  bool is_over(std::uint32_t slot) const;
  bool has_results(std::uint32_t slot) const { return env_behind(slot).results != 0; }

  // For a successor of a dead worker: its port is as new, and what is sent waits there until it `arrives`.
  void reopen(std::uint32_t worker);
  // There will be none: it counts as dead from now on.
  void give_up(std::uint32_t worker);
  void arrive(std::uint32_t worker, int pidfd, int socket);

  // Slots of a part that were sent something that has not been taken yet: in flight, or ready.
  std::uint32_t pending(std::uint32_t part) const { return parts_.at(part).in_flight + ready(part); }
  std::uint32_t ready(std::uint32_t part) const { return parts_.at(part).ready_slots; }
  // Something that `wait` does not hand over by itself: answers, failures, deaths, words from the relay.
  bool needs_attention() const { return failed_ != 0 || attention(); }
  std::uint64_t waited_ns() const { return waited_ns_; }
  // How much time there has been, all told, in which we were not running, or did not look: it counts for no deadline.
  std::int64_t lost_ns();
  bool has_room(std::uint32_t worker) const;  // for one more message
  nb::list meters() const;                    // (steps, busy_ns, cpu_ns) of each worker

  // What Python's garbage collector has to know: whom we hold that may hold us.
  int visit(visitproc visit, void* arg) const {
    Py_VISIT(receive_.ptr());
    Py_VISIT(send_.ptr());
    return 0;
  }
  void clear() {
    receive_.reset();
    send_.reset();
  }

  void add_info_column(Column column) {
    lendings_->add_column(column.row(0), column.row_bytes());
    info_columns_.push_back(std::move(column));
  }
  std::size_t num_info_columns() const { return info_columns_.size(); }

 private:
  static constexpr std::uint32_t kNoSlot = Seating::kNoSlot;
  using Way = Transfers::Way;
  // kDue: its result is there but for the first observation of the next episode, which is to be a spare's.
  enum class SlotState : std::uint8_t { kIdle, kInFlight, kOrphaned, kDue, kReady };
  struct Slot {
    std::uint32_t position = 0;  // of its row in a frame
    std::uint32_t part = 0;
    SlotState state = SlotState::kIdle;
    Op op = Op::kReset;          // of its last command
    std::uint32_t row = 0;       // ... and where the result goes
    std::uint64_t sequence = 0;  // ... and when it was sent, among others
    bool over = false;           // its episode is, and its next command begins another, see `begins_episode`
    nb::object parts;            // of the command in flight, if it has any
    nb::object terminal;         // see `reset_into_row`
    nb::object deferred;         // see `defer_end`
    bool deferred_as_reset = false;
  };
  struct Env {
    std::uint32_t worker;
    std::uint64_t results = 0;  // that its workers have sent
    bool fresh = false;         // it was built anew and not reset yet: its slot's last observation is known here alone
    nb::object last_parts;      // of its last result, where observations have parts without a column
  };
  struct Message {  // that somebody has to deal with
    std::uint32_t worker;
    std::optional<std::uint32_t> slot;  // of an answer: the env that was asked
    std::uint64_t sequence;
    std::uint32_t flags;
    nb::object parts;
    // A slot that failed instead of getting ready.
    bool is_fault() const { return (flags & kIsFailure) && !(flags & kIsMessage); }
  };
  struct Ready {  // a run of slots that are done
    std::uint32_t slot, row, count, flags;
    nb::object parts = {}, terminal = {};
  };
  struct Part {
    std::vector<std::uint32_t> slots;     // ascending, and so are their positions, from the first on without a gap
    std::shared_ptr<FrameBook> book;      // of the frames that can be leased: 1, 2, ... (0 is the scratch frame)
    std::vector<std::uint32_t> rows_out;  // per frame: rows sent and not yet taken
    std::vector<Ready> ready = {};        // in the order of arrival
    std::uint32_t ready_slots = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t failed = 0;  // of the messages: slots that failed instead of getting ready
  };
  struct Port {
    Bell* bell;
    Meter* meter;
    RingProducer<Command> commands;
    RingConsumer<Result> results;
    BlobWriter blobs_out;
    BlobReader blobs_in;
    std::uint32_t first_env, envs;
    std::uint32_t outstanding = 0;  // commands and messages sent and not yet answered
    bool pushed = false;            // has commands that are not published yet
    bool dead = false;
    bool absent = false;                  // its process is still to come
    bool late = false;                    // told already
    bool corrupt = false;                 // what it said makes no sense: nothing more is read from it
    Clock::time_point heard = {};         // its last sign of progress, or when it was given work; for deadlines
    std::uint64_t last_end_ns = 0;        // when its last result was ready, by its own clock
    std::vector<std::uint64_t> messages;  // their sequences, unanswered
    std::vector<std::pair<Result, nb::object>> held = {};  // of sub-envs of a vector env that is not done yet
    std::uint32_t held_sub_envs = 0;
  };

  const Env& env_behind(std::uint32_t slot) const { return envs_[seating_.env_of(slot)]; }
  Env& env_behind(std::uint32_t slot) { return envs_[seating_.env_of(slot)]; }
  Part& part_of(std::uint32_t slot) { return parts_[slots_[slot].part]; }
  std::vector<std::uint32_t> targets(nb::handle slots, const Part& part) const;
  std::vector<std::uint32_t> idle_slots(nb::handle slots, std::uint32_t part) const;
  void dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs, Part& part);
  bool extends_run(std::uint32_t slot, std::uint32_t next) const;
  bool begins_episode(std::uint32_t slot, Op op, nb::handle parts);
  void swap_in_spare(std::uint32_t slot);
  void await_spare(std::uint32_t slot, nb::object terminal);
  void resolve_due();
  std::uint64_t first_open();
  Port make_port(std::uint32_t worker) const;
  bool deliver_deferred(std::uint32_t slot, Op op);
  bool answer_here(std::uint32_t slot, Op op, nb::handle parts);
  Slot& orphaned(std::uint32_t slot);
  std::uint32_t kept_row(std::uint32_t slot) const {  // the last result of its env
    return plan_.kept_row(env_of(slot), env_behind(slot).results);
  }
  void mark_corrupt(std::uint32_t worker);
  bool is_sound(const Port& port, const Result& result) const;
  std::uint32_t open_frame(Part& part, std::size_t count);
  void copy_actions(const std::vector<std::uint32_t>& slots, nb::list actions, const Part& part);
  void copy_column(const Column& column, const void* data, const std::vector<std::uint32_t>& slots, const Part& part);
  void push(std::uint32_t worker, const Command& command, nb::handle parts);
  void raise_interrupt();
  void push_run(Op op, std::uint32_t slot, std::uint32_t count, nb::handle parts);
  void publish(std::uint32_t worker, bool at_once = false);
  void finish_turn(std::uint32_t worker);

  void drain();
  bool accept(std::uint32_t worker, const Result& result);
  void write_on();
  bool sleep(std::uint32_t target, Nanoseconds limit, Clock::time_point& now);
  void hold(std::uint32_t worker, const Result& result, nb::object parts);
  bool is_next_of_vector(const Port& port, const Result& result) const;
  void accept_rows(std::uint32_t worker, const Result& result, nb::object parts);
  void finish_rows(std::uint32_t first, const Result& result, nb::object parts);
  void poll(Clock::time_point now);
  void find_dead(Clock::time_point now);
  void find_late(Clock::time_point now);
  Op oldest_op(const Port& port) const;
  void copy_row(const std::vector<Column>& to, std::size_t first_to, std::uint32_t to_row, std::uint32_t from_row);
  void set_flags(std::uint32_t row, bool truncated);
  void tell(Message message);
  bool attention() const { return answers_ != 0 || !newly_dead_.empty() || !newly_late_.empty() || has_news(); }

  struct Taken {  // a batch in the making; objects may be null
    bool has_finals = false, has_infos = false;
    nb::object columns, finals, infos, extras;
  };
  static std::uint32_t done(const Part& part) { return part.ready_slots + part.failed; }
  std::vector<Ready> remove_ready(Part& part, std::uint32_t limit);
  std::vector<std::uint32_t> note_ends(const std::vector<Ready>& taken);
  Taken describe(const std::vector<Ready>& taken) const;
  void lend(Part& part, std::uint32_t frame, Taken& batch);
  void copy(Part& part, const std::vector<Ready>& taken, Taken& batch);
  template <class MakeArray>
  void fill(Taken& batch, MakeArray make_array);
  static nb::object slots_of(const std::vector<Ready>& taken);
  bool is_whole_frame(const Part& part, const std::vector<Ready>& taken) const;
  void rows_done(Part& part, std::uint32_t row, std::uint32_t count);

  std::shared_ptr<Arena> arena_;
  Plan plan_;
  std::shared_ptr<Lendings> lendings_;
  Autoreset autoreset_;
  std::vector<Port> ports_;
  std::vector<Slot> slots_;
  std::vector<Env> envs_;
  std::vector<Part> parts_;
  // Of how the pool was divided before: their rows lie elsewhere now, but some are still held.
  std::vector<std::shared_ptr<FrameBook>> books_before_;
  Seating seating_;
  Turns turns_;
  Watch watch_;
  Transfers transfers_;
  Deadlines deadlines_;
  RunningClock clock_;
  std::vector<Column> columns_, final_columns_, info_columns_, actions_;
  nb::object receive_, send_;
  Progress* progress_;  // by env
  Bell* bell_;
  Words* words_;
  SpinBudget spin_budget_;

  std::optional<std::pair<npy_int64, npy_int64>> choices_;
  std::deque<Message> messages_;
  std::uint32_t answers_ = 0;   // of the messages: those that answer one of ours, or tell of a renewal
  std::uint32_t failed_ = 0;    // of the messages: slots that failed instead of getting ready, in all parts
  std::uint32_t awaited_ = 0;   // messages without an answer yet
  std::uint32_t deferred_ = 0;  // slots whose deferred end is to be delivered
  std::deque<std::uint32_t> newly_dead_;
  std::deque<std::pair<std::uint32_t, std::optional<Op>>> newly_late_;  // with what; nullopt: it talks nonsense
  std::uint32_t heard_ = 0;                                             // of the words that were said
  std::uint32_t width_;
  std::uint64_t sequence_ = 0;
  std::optional<nb::python_error> interrupt_;  // came while we wrote to a socket
  std::uint64_t waited_ns_ = 0;                // spent in `wait`, all told
};

}  // namespace remuda
