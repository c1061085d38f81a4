// The workers of a pool: what is sent to them, what is received from them, and what they are doing.
//
//   Port       rings, bell and state of each worker     Deadlines, RunningClock   time limits of ops
//   Outbox     commands and messages, in turns          Watch                     events that ring no bell
//   Mail       messages too large for the arena         RecordCounts              log records of workers
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pool/workers/deadlines.hpp"
#include "pool/workers/mail.hpp"
#include "pool/workers/outbox.hpp"
#include "pool/workers/port.hpp"
#include "pool/workers/record_counts.hpp"
#include "pool/workers/transfers.hpp"
#include "pool/workers/watch.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"

namespace remuda {

class Workers {
 public:
  // `envs_of_worker`: the number of envs of each worker, in order. `queues`: see `Mail`. `max_running`: the number of
  // workers that may have commands at once; the others wait for their turn.
  Workers(const Arena& arena, const Plan& plan, const std::vector<std::uint32_t>& envs_of_worker,
          const nb::sequence& queues, std::uint32_t max_running);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::uint32_t count() const { return static_cast<std::uint32_t>(ports_.size()); }
  Port& operator[](std::uint32_t worker) { return ports_[worker]; }
  const Port& operator[](std::uint32_t worker) const { return ports_[worker]; }
  Outbox& outbox() { return outbox_; }
  Transfers& transfers() { return transfers_; }
  Watch& watch() { return watch_; }
  RunningClock& clock() { return clock_; }

  // -- sending -------------------------------------------------------------------------------------------------

  // Returns whether the ring has room for one more message. Commands of the worker's envs always find room, and so does
  // one message for each env.
  bool has_room(std::uint32_t worker) const {
    return ports_[worker].outstanding + ports_[worker].envs < plan_.ring_capacity;
  }

  // -- receiving -----------------------------------------------------------------------------------------------

  // Receives the parts that come with a result, if any.
  Mail::Arrival read(std::uint32_t worker, const Result& result, nb::object& parts) {
    return result.flags & (kOnSocket | kHasBlob) ? read_parts_of(worker, result, parts) : Mail::Arrival::kWhole;
  }
  // Notes that a result was read.
  void note_result(std::uint32_t worker, const Result& result) {
    Port& port = ports_[worker];
    port.heard = Clock::time_point(Nanoseconds(result.end_ns));
    port.last_end_ns = result.end_ns;
    port.outstanding -= result.count;
    if (port.outstanding == 0) outbox_.finish_turn(worker);
    if (result.flags & kIsMessage) std::erase(port.messages, result.sequence);
  }
  // The number of log records and warnings that the workers have sent so far; whether the caller has handled fewer. The
  // caller handles them before the results of the step that logged them.
  std::uint32_t records_sent() const { return records_.sent(); }
  bool has_unread_records() const { return records_.any_unread(); }
  void note_records_read(std::uint32_t sent) { records_.note_read(sent); }

  // -- processes -----------------------------------------------------------------------------------------------

  // Watches for the death of a process, and for its socket (-1: none) to become ready for the rest of a message. The
  // descriptors stay the caller's.
  void watch_process(std::uint32_t worker, int pidfd, int socket);
  // Also watches this descriptor, permanently: log records of workers arrive there. It stays the caller's.
  void relay(int fd) { watch_.set_relay(fd); }
  // Makes a wait end when one of these descriptors becomes readable, or at that time (CLOCK_MONOTONIC, ns; 0: never).
  // Both stay in force until the next call. This call clears the current news.
  void listen(std::vector<int> fds, std::int64_t alarm_ns) {
    watch_.listen(std::move(fds), Clock::time_point(Nanoseconds(alarm_ns)));
  }
  bool has_news() const { return watch_.has_news(); }
  void raise_news() { watch_.raise_news(); }                                // until the next `listen`
  void look_every(std::int64_t ns) { watch_.look_every(Nanoseconds(ns)); }  // only for benchmarks: see `Watch`
  // Marks a worker as dead, after its process has ended and all its published results were read.
  void end(std::uint32_t worker);
  // Empties the port of a dead worker for its successor. The port keeps commands until the successor arrives.
  void reopen(std::uint32_t worker);
  void arrive(std::uint32_t worker, int pidfd, int socket);

  // -- time ----------------------------------------------------------------------------------------------------

  // Sets the nanoseconds that an env may take for a reset, a step, a message, a build; 0: unlimited.
  void set_deadlines(std::int64_t reset_ns, std::int64_t step_ns, std::int64_t message_ns, std::int64_t build_ns) {
    deadlines_.set({Nanoseconds(reset_ns), Nanoseconds(step_ns), Nanoseconds(message_ns), Nanoseconds(build_ns)});
  }
  bool has_deadlines() const { return deadlines_.has_any(); }
  // Returns the op that a worker has exceeded the deadline of; empty if it is not late. This is the op of `task`, or,
  // if the worker has work but no task, `oldest`, the first op that it was given. `task`: the port's task from before
  // its results were read.
  std::optional<Op> late_with(std::uint32_t worker, std::uint64_t task, Op oldest, Clock::time_point now) const;
  // The time in which this process was frozen or did not look. It does not count for deadlines.
  std::int64_t lost_ns();

  // -- facts ---------------------------------------------------------------------------------------------------

  // The op and the env that a worker is at, or was at when it died: (op | None, env | None).
  nb::tuple doing(std::uint32_t worker) const;
  // The start of the worker's task (CLOCK_MONOTONIC, ns); 0 if it has no task.
  std::uint64_t busy_since(std::uint32_t worker) const;
  // For statistics, see figures.hpp: a restart, a replacement because of memory, or time without a serving worker.
  void count_restart(std::uint32_t worker) { add(figures_[worker].restarts, 1); }
  void count_memory_renewal(std::uint32_t worker) { add(figures_[worker].memory_renewals, 1); }
  void count_outage(std::uint32_t worker, std::uint64_t ns) { add(figures_[worker].outage_ns, ns); }

 private:
  Mail::Arrival read_parts_of(std::uint32_t worker, const Result& result, nb::object& parts);

  const Arena& arena_;
  const Plan& plan_;
  WorkerFigures* figures_;  // by worker
  std::vector<Port> ports_;
  Transfers transfers_;
  Mail mail_;
  Deadlines deadlines_;
  RunningClock clock_;
  Watch watch_;
  RecordCounts records_;
  Outbox outbox_;
};

}  // namespace remuda
