// The pool's side of its workers: sends to them, receives from them, and watches their processes. The members are
//
//   Port          the rings, bell and life of a worker
//   RunningLimit  which workers may have commands
//   Mail          the messages too large for the arena
//   Deadlines     the time limits of ops
//   Watch         the events that ring no bell, and the clock
//
// Commands are written first and published later: once a worker has its turn (running_limit.hpp), all of its commands
// are published with one ring of its bell.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pool/workers/deadlines.hpp"
#include "pool/workers/mail.hpp"
#include "pool/workers/port.hpp"
#include "pool/workers/running_limit.hpp"
#include "pool/workers/watch.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"

namespace remuda {

class Workers {
 public:
  // `envs_of_worker`: the number of envs of each worker, in order. `queues`: see `Mail`. `max_running`: the number of
  // workers that may have commands at once; the others wait for their turn.
  Workers(const std::shared_ptr<Arena>& arena, const Plan& plan, const std::vector<std::uint32_t>& envs_of_worker,
          const nb::sequence& queues, std::uint32_t max_running);

  std::uint32_t count() const { return static_cast<std::uint32_t>(ports_.size()); }
  Port& operator[](std::uint32_t worker) { return ports_[worker]; }
  const Port& operator[](std::uint32_t worker) const { return ports_[worker]; }
  Mail& mail() { return mail_; }
  const std::shared_ptr<Watch>& watch() const { return watch_; }

  // -- sending -------------------------------------------------------------------------------------------------

  // Returns the number of the next command or message. Both are counted together, from 1.
  std::uint64_t next_sequence() { return ++sequence_; }
  std::uint64_t last_sequence() const { return sequence_; }
  // Writes a command or message. `parts`: its data as bytes-like objects, or None. Data that is too large for the ring
  // goes through the worker's socket.
  void push(std::uint32_t worker, Command command, nb::handle parts);
  // Makes everything that was written visible to the worker, if the worker gets a turn. If `at_once`, it gets one even
  // beyond the limit.
  void publish(std::uint32_t worker, TimeOfCall& now, bool at_once = false);
  void publish_all(TimeOfCall& now) {
    for (std::uint32_t worker = 0; worker < count(); ++worker) publish(worker, now);
  }
  bool any_waits_for_turn() const { return limit_.any_waiting(); }
  // Returns whether anything was published since the last call of this function.
  bool take_published() { return std::exchange(has_published_, false); }
  // Returns whether the worker's ring has room for one more message, besides a command to each of the worker's envs.
  bool has_room(std::uint32_t worker) const {
    return ports_[worker].outstanding + ports_[worker].envs < plan_.ring_capacity;
  }

  // -- receiving -----------------------------------------------------------------------------------------------

  // Receives the parts that come with a result; returns kWhole if there are none.
  Mail::Arrival read(std::uint32_t worker, const Result& result, nb::object& parts);
  // Updates the worker's port after a result was read.
  void note_result(std::uint32_t worker, const Result& result) {
    Port& port = ports_[worker];
    port.heard = Clock::time_point(Nanoseconds(result.end_ns));
    port.last_end_ns = result.end_ns;
    port.outstanding -= result.count;
    if (port.outstanding == 0) finish_turn(worker);
    if (result.flags & kIsMessage) std::erase(port.messages, result.sequence);
  }
  // Returns the number of log records and warnings that the workers have sent so far.
  std::uint32_t records_sent() const { return records_.sent.load(std::memory_order_relaxed); }

  // -- processes -----------------------------------------------------------------------------------------------

  // Watches a process for its end, and its socket (-1: none) for the rest of a message. The caller still owns both
  // descriptors.
  void watch_process(std::uint32_t worker, int pidfd, int socket);
  // Watches this descriptor, permanently, for log records from workers. The caller still owns the descriptor.
  void relay(int fd) { watch_->set_relay(fd); }
  // Marks a worker as dead. Called after its process has ended and all its published results were read.
  void end(std::uint32_t worker);
  // Empties the rings of a dead worker. New commands wait in its port until the worker's successor arrives.
  void reopen(std::uint32_t worker);
  void arrive(std::uint32_t worker, int pidfd, int socket);

  // -- time ----------------------------------------------------------------------------------------------------

  // Sets the time limits in ns for a reset, a step, a message and a build; 0: unlimited.
  void set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns,
                     std::int64_t close_ns) {
    deadlines_.set(Nanoseconds(reset_ns), Nanoseconds(step_ns), Nanoseconds(message_ns), Nanoseconds(build_ns),
                   Nanoseconds(close_ns));
    watch_->check_at(has_deadlines() ? Clock::now() : Clock::time_point());  // the supervisor plans the next check
  }
  bool has_deadlines() const { return deadlines_.has_any(); }
  // Returns the op for which a worker has missed the deadline; nullopt if the worker is not late. `task`: the port's
  // task, read before the worker's results. If the worker has work but no task, the op is `oldest`, the op of its
  // oldest command in flight.
  std::optional<Op> late_with(std::uint32_t worker, std::uint64_t task, Op oldest, Clock::time_point now) const;
  // Returns the time of the next check for late workers; {} without deadlines.
  Clock::time_point next_check(Clock::time_point now) const;
  // Makes a late worker a serving one, because its thread cannot be killed. As long as it is late, it is reported
  // again.
  void forgive(std::uint32_t worker) {
    if (ports_[worker].state() == WorkerState::kLate) ports_[worker].become(WorkerState::kRunning);
  }

  WorkerState state(std::uint32_t worker) const { return ports_[worker].state(); }
  // Notes that a running worker was sent the command to close its envs, to be replaced.
  void note_closing(std::uint32_t worker) { ports_[worker].become(WorkerState::kClosing); }
  // Notes that the pool kills a worker. A corrupt worker stays corrupt.
  void note_killed(std::uint32_t worker) {
    if (ports_[worker].state() != WorkerState::kCorrupt) ports_[worker].become(WorkerState::kKilled);
  }

  // -- facts ---------------------------------------------------------------------------------------------------

  // Returns the op and the env that a worker is at, or was at when it died: (op | None, env | None).
  nb::tuple doing(std::uint32_t worker) const;
  // Returns the start time of the worker's task (CLOCK_MONOTONIC, ns); 0 if it has no task.
  std::uint64_t busy_since(std::uint32_t worker) const;
  // These functions count a restart, a renewal due to the memory limit, and the time from a fault until a successor
  // serves or the worker is lost, for statistics (figures.hpp). An outage has begun at `since` (CLOCK_MONOTONIC, ns).
  void count_restart(std::uint32_t worker) { add(figures_[worker].restarts, 1); }
  void count_memory_renewal(std::uint32_t worker) { add(figures_[worker].memory_renewals, 1); }
  void begin_outage(std::uint32_t worker, std::uint64_t since);

 private:
  void end_absence(std::uint32_t worker);
  // Ends the turn of a worker that has nothing left to do. The worker that has waited longest gets the next turn.
  void finish_turn(std::uint32_t worker);

  const Arena& arena_;
  const Plan& plan_;
  WorkerFigures* figures_;  // indexed by worker
  std::vector<Port> ports_;
  Mail mail_;
  Deadlines deadlines_;
  std::shared_ptr<Watch> watch_;
  const Records& records_;
  RunningLimit limit_;
  std::uint64_t sequence_ = 0;
  bool has_published_ = false;
};

}  // namespace remuda
