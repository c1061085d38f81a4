// The pool's end of the protocol: hands commands to the workers, gathers their results into batches.
//
// One thread at a time may call it.  It knows slots, rows and records; what a message or a failure
// means is its Python owner's business.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "columns.hpp"
#include "frames.hpp"
#include "plan.hpp"

namespace remuda {

inline nb::object none_or(nb::object object) { return object.is_valid() ? object : nb::object(nb::none()); }

class Hub {
 public:
  // `slots_of_worker[w]`: how many slots worker w hosts; they are dealt out in order.
  // `receive(w) -> parts | None (it died) | False (nonsense)` reads from worker w's socket, `send(w, parts)` writes to
  // it. `columns`: reward, terminated, truncated, info mask, then the observation's leaves. `max_running`: how many
  // workers may have commands at once; the others' wait here for their turn.
  Hub(std::shared_ptr<Arena> arena, Plan plan, std::vector<std::uint32_t> slots_of_worker, std::vector<Column> columns,
      std::vector<Column> final_columns, std::vector<Column> actions, nb::object receive, nb::object send,
      std::int64_t spin_ns, std::uint32_t max_running);

  // -- out -------------------------------------------------------------------------------------------

  // One command for each of `slots` (None: all).  `actions`: one array per action column, with a row
  // per slot, dtype and layout as the column's; `blobs`: None, or one list of parts (or None) per slot.
  // All slots are checked before the first command is sent; raises ValueError naming a slot in flight.
  void send(Op op, nb::handle slots, nb::list actions, nb::handle blobs);
  // The short way of `send` for a step of all slots: true when `actions` is an array that fits the only action
  // column as it is, every number within `set_choices`, and no slot is pending; else nothing was sent.
  bool send_steps(nb::handle actions);
  void set_choices(npy_int64 low, npy_int64 high) { choices_ = {low, high}; }
  // Sends a message (or kClose) to `worker` concerning `slot`; returns the number its answer will carry.
  std::uint64_t post_message(Op op, std::uint32_t worker, std::uint32_t slot, nb::handle parts);

  // -- in --------------------------------------------------------------------------------------------

  // Waits until `wanted` slots are done (ready or failed), or somebody needs attention (an answer to a
  // message, a dead worker, words from the relay), or `timeout_ns` (negative: none) is over.  Sleeps
  // without the GIL; lets signal handlers run.  True when `wanted` slots are done.
  bool wait(std::uint32_t wanted, std::int64_t timeout_ns);

  // Removes up to `limit` ready slots, in the order of their arrival, and returns
  //   (slots | None, columns, final_columns | None, info_columns | None, extras | None)
  // slots: an int64 array, or None for a whole frame in slot order.  The three lists hold an array for
  // each column, views of a leased frame where possible, else copies.  final_columns: None when no row
  // has a final observation; info_columns: None when no row has an info in a column.
  // extras: {position: (flags, parts | None, terminal | None)} of the rows with a final observation or a blob;
  // terminal: what `revive` was given.
  nb::tuple take(std::uint32_t limit);
  // `wait` for everything pending, then `take` it; None when anything is out of the ordinary.
  std::optional<nb::tuple> finish();
  // Removes everything ready without looking at it.
  void drop_ready();

  // -- what goes wrong ---------------------------------------------------------------------------------

  // Removes the answers to messages, and the failures and due renewals: a list of
  // (worker, slot | None, sequence, flags, parts).  The slot of a failure, or of a result that waits for a
  // renewal, is stranded.
  nb::list take_messages();
  // Watches a process: `wait` notices its death.  The descriptor stays the caller's.
  void watch(std::uint32_t worker, int pidfd);
  // Looks at this descriptor too, for good: what workers log comes there.  It stays the caller's.
  void relay(int fd) { relay_fd_ = fd; }
  // Removes the workers found dead since the last call: a list of (worker, [slots that were in flight, and are
  // stranded now], [sequences of messages without an answer]).
  nb::list take_dead();
  // Makes `wait` return when one of these descriptors becomes readable, or at that time (CLOCK_MONOTONIC, ns; 0:
  // never).  Both stay in force until they are replaced.
  void listen(std::vector<int> fds) { listened_ = std::move(fds); }
  bool take_news() { return std::exchange(news_, false); }
  void set_alarm(std::int64_t at_ns) { alarm_ = Clock::time_point(Nanoseconds(at_ns)); }
  // Nanoseconds that an env may take for a reset, a step, a message; 0: any time.
  void set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns);
  // Removes the workers found late since the last call, and those whose results make no sense: a list of
  // (worker, op | None).  Each is told once.
  nb::list take_late();
  // What a worker does, or did when it died: (op | None, slot | None).
  nb::tuple doing(std::uint32_t worker) const;
  // (resets, steps since the last one) of a slot so far.
  nb::tuple progress(std::uint32_t slot) const;
  // The op that a slot was sent last.
  Op last_op(std::uint32_t slot) const { return slots_[slot].op; }

  // A stranded slot is pending, without a command: one of these ends that.
  void drop(std::uint32_t slot);    // it has no result
  void resend(std::uint32_t slot);  // its command once more
  // A result made here: the last observation once more, reward 0.  `parts` is handed out with it.
  void retell(std::uint32_t slot, nb::handle parts);
  void end_episode(std::uint32_t slot, nb::handle parts);  // the same, truncated
  // Its env resets, and the row is the end of an episode; `terminal` is handed out with it.  `is_complete`:
  // reward, flags and terminal observation are in the row; else they are written as `end_episode` does.
  void revive(std::uint32_t slot, nb::handle terminal, bool is_complete);
  // An idle slot whose episode was cut off: its next step or observe is answered by `end_episode`, or by `revive`.
  void owe(std::uint32_t slot, nb::handle payment, bool revives);
  bool owes(std::uint32_t slot) const { return slots_[slot].owed.is_valid(); }
  // Whether its env was built anew since its last result and has not reset yet, so that it knows of no observation: an
  // observe is answered by `retell`, with the parts it was sent with.
  bool is_fresh(std::uint32_t slot) const { return slots_[slot].fresh; }

  // The last observation of a slot: (the row of the columns where it is kept, the parts that came with it | None).
  // With `keeps_last` only, as what follows.
  nb::tuple last(std::uint32_t slot) const;
  // Whether its last result ended the episode (and no same-step autoreset began the next one).
  bool is_over(std::uint32_t slot) const;
  bool has_results(std::uint32_t slot) const { return slots_[slot].results != 0; }

  // For a successor of a dead worker: its port is as new, and what is sent waits there until it `arrives`.
  void reopen(std::uint32_t worker);
  // There will be none: it counts as dead from now on.
  void give_up(std::uint32_t worker);
  void arrive(std::uint32_t worker, int pidfd);

  // Slots sent something that has not been taken yet: in flight, or ready.
  std::uint32_t pending() const { return in_flight_ + ready(); }
  std::uint32_t ready() const { return ready_slots_; }
  // Something that `wait` does not hand over by itself: answers, failures, deaths, words from the relay.
  bool needs_attention() const { return failed_ != 0 || attention(); }
  std::uint64_t waited_ns() const { return waited_ns_; }
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

  void add_info_column(Column column) { info_columns_.push_back(std::move(column)); }

 private:
  enum class SlotState : std::uint8_t { kIdle, kInFlight, kStranded, kReady };
  struct Slot {
    std::uint32_t worker;
    SlotState state = SlotState::kIdle;
    Op op = Op::kReset;         // of its last command
    std::uint32_t row = 0;      // ... and where the result goes
    std::uint64_t results = 0;  // that its workers have sent
    nb::object parts;           // of the command in flight, if it has any
    nb::object terminal;        // see `revive`
    nb::object owed;            // see `owe`
    bool owed_revives = false;
    bool fresh = false;     // its env was built anew and not reset yet: its last observation is known here alone
    nb::object last_parts;  // of its last result, where observations have parts without a column
  };
  struct Ready {  // a run of slots that are done
    std::uint32_t slot, row, count, flags;
    nb::object parts = {}, terminal = {};
  };
  struct Port {
    Bell* bell;
    Meter* meter;
    RingProducer<Command> commands;
    RingConsumer<Result> results;
    BlobWriter blobs_out;
    BlobReader blobs_in;
    std::uint32_t first_slot, slots;
    std::uint32_t outstanding = 0;  // slots and messages sent and not yet answered
    bool pushed = false;            // has commands that are not published yet
    bool running = false;           // has commands that are
    bool dead = false;
    bool absent = false;            // its process is still to come
    bool late = false;              // told already
    bool corrupt = false;           // what it said makes no sense: nothing more is read from it
    Clock::time_point heard = {};   // its last sign of progress, or when it was given work; for deadlines
    std::uint64_t last_end_ns = 0;  // when its last result was ready, by its own clock
    int pidfd = -1;
    std::vector<std::uint64_t> messages;  // their sequences, unanswered
  };

  std::vector<std::uint32_t> targets(nb::handle slots) const;
  void dispatch(Op op, const std::vector<std::uint32_t>& targets, nb::handle blobs);
  Port make_port(std::uint32_t worker) const;
  bool pay(std::uint32_t slot, Op op);
  bool answer_here(std::uint32_t slot, Op op, nb::handle parts);
  Slot& stranded(std::uint32_t slot);
  void distrust(std::uint32_t worker);
  bool is_sound(const Port& port, const Result& result) const;
  std::uint32_t open_frame(std::size_t count);
  void copy_actions(const std::vector<std::uint32_t>& slots, nb::list actions);
  void push(std::uint32_t worker, const Command& command, nb::handle parts);
  void raise_interrupt();
  void push_run(Op op, std::uint32_t slot, std::uint32_t count, std::uint32_t frame, nb::handle parts);
  void publish(std::uint32_t worker, bool at_once = false);
  void finish_turn(Port& port);

  void drain();
  void accept(std::uint32_t worker, const Result& result);
  void glance();
  void find_dead();
  void find_late();
  Op oldest_op(const Port& port) const;
  Nanoseconds limit_of(Op op) const;
  void copy_row(const std::vector<Column>& to, std::size_t first_to, std::uint32_t to_row, std::uint32_t from_row);
  void set_flags(std::uint32_t row, bool truncated);
  bool alarm_due() const { return alarm_ != Clock::time_point{} && Clock::now() >= alarm_; }
  std::uint32_t done() const { return ready_slots_ + failed_; }
  bool attention() const { return answers_ != 0 || !newly_dead_.empty() || !newly_late_.empty() || news_; }

  struct Taken {  // a batch in the making; objects may be null
    bool has_finals = false, has_infos = false;
    nb::object columns, finals, infos, extras;
  };
  std::vector<Ready> remove_ready(std::uint32_t limit);
  Taken describe(const std::vector<Ready>& taken) const;
  void lend(std::uint32_t frame, Taken& batch);
  void copy(const std::vector<Ready>& taken, Taken& batch);
  template <class MakeArray>
  void fill(Taken& batch, MakeArray make_array);
  static nb::object slots_of(const std::vector<Ready>& taken);
  bool is_whole_frame(const std::vector<Ready>& taken) const;
  void rows_done(std::uint32_t row, std::uint32_t count);

  std::shared_ptr<Arena> arena_;
  Plan plan_;
  std::shared_ptr<FrameBook> book_;      // of the frames that can be leased: 1, 2, ... (0 is the scratch frame)
  std::vector<std::uint32_t> rows_out_;  // per frame: rows sent and not yet taken
  std::vector<Port> ports_;
  std::vector<Slot> slots_;
  std::vector<Column> columns_, final_columns_, info_columns_, actions_;
  nb::object receive_, send_;
  Progress* progress_;  // by slot
  Bell* bell_;
  Patience patience_;

  std::vector<std::uint32_t> all_slots_;
  std::optional<std::pair<npy_int64, npy_int64>> choices_;
  std::vector<Ready> ready_;
  std::uint32_t ready_slots_ = 0;
  nb::list messages_;
  std::uint32_t answers_ = 0;  // of the messages: those that answer one of ours, or tell of a renewal
  std::uint32_t failed_ = 0;   // of the messages: slots that failed instead of getting ready
  std::uint32_t awaited_ = 0;  // messages without an answer yet
  std::uint32_t owed_ = 0;     // slots with an unpaid debt
  std::vector<std::uint32_t> newly_dead_, newly_late_;
  std::vector<int> listened_;
  int relay_fd_ = -1;
  bool news_ = false;  // there is something to read from one of them, or the alarm went off
  Clock::time_point alarm_{};
  bool has_deadlines_ = false;
  Nanoseconds reset_limit_{0}, step_limit_{0}, message_limit_{0}, build_limit_{0};
  Clock::time_point looked_{};       // when we last looked at what does not ring
  std::deque<std::uint32_t> turns_;  // workers whose commands wait for another worker to finish
  std::uint32_t running_ = 0, max_running_;
  std::uint32_t in_flight_ = 0;
  std::uint64_t sequence_ = 0;
  std::optional<nb::python_error> interrupt_;  // came while we wrote to a socket
  std::uint64_t waited_ns_ = 0;                // spent in `wait`, all told
};

}  // namespace remuda
