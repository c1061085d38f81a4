// The pool's access to one worker: the pool's ends of its rings, and the one record of the worker's life. The state
// changes
//
//   running               -> late      when the worker misses a deadline, which is reported once
//   late                  -> running   when the worker is a thread, which cannot be killed
//   running               -> closing   when it is sent the command to close its envs, to be replaced
//   running, late,
//   closing               -> killed    when the pool kills it, or is to kill it because it closes its envs too slowly
//   running, late,
//   closing, killed       -> corrupt   when a result is unsound; it is killed, and nothing more is read from it
//   running, late,
//   closing, killed,
//   corrupt               -> dead      when its process has ended, and its published results were read
//   dead                  -> starting  when its successor is to be started, with an empty port; otherwise it is lost
//   starting              -> running   when the successor has built its envs
//   starting              -> dead      when it turns out that there will be no successor
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/clock.hpp"
#include "shm/plan.hpp"

namespace remuda {

enum class WorkerState : std::uint8_t { kStarting, kRunning, kLate, kClosing, kKilled, kCorrupt, kDead };

class Port {
 public:
  Port(const Arena& arena, const Plan& plan, std::uint32_t worker, std::uint32_t first_env, std::uint32_t envs);

  WorkerState state() const { return state_; }
  // Changes the state. Throws std::logic_error if the table at the top of this file does not permit the change.
  void become(WorkerState state);
  // `is_alive`: whether the worker runs as far as the pool knows, and is published commands. `is_read`: whether the
  // pool reads its results.
  bool is_alive() const { return state_ != WorkerState::kStarting && state_ != WorkerState::kDead; }
  bool is_read() const { return is_alive() && state_ != WorkerState::kCorrupt; }
  // Returns whether deadlines hold for the worker: a late one was reported, and a killed one is about to end.
  bool has_deadlines() const { return state_ == WorkerState::kRunning || state_ == WorkerState::kClosing; }

  // Resets rings and bells for the successor of a dead worker.
  void reopen(const Arena& arena, const Plan& plan, std::uint32_t worker);

  bool hosts(std::uint32_t env) const { return env - first_env < envs; }
  // The current task that the worker has recorded in the arena, see `Task`. The worker may have finished this task
  // already, as its results show, or corrupted the record. Therefore `is_at` returns false for a finished task, and for
  // a task that began in the future or before this worker's life.
  std::uint64_t task() const { return meter->task.load(std::memory_order_acquire); }
  bool is_at(std::uint64_t task) const {
    return Task::is_sound(task) && !Task::is_over(task, last_end_ns) && Task::begin_ns(task) <= now_ns();
  }

  Bell* bell;
  Meter* meter;
  RingProducer<Command> commands;
  RingConsumer<Result> results;
  BlobWriter blobs_out;
  BlobReader blobs_in;
  std::uint32_t first_env, envs;
  std::uint32_t width;                  // The number of rows of each env.
  std::uint32_t outstanding = 0;        // The number of unanswered commands and messages.
  std::vector<std::uint64_t> messages;  // The sequences of the unanswered messages.
  bool has_unpublished = false;         // Whether some commands were written and not published.
  // For deadlines: the time of the worker's last sign of progress, or of the start of its work.
  Clock::time_point heard = {};
  // The time when the worker's last result was ready; before the first result, the time when this port opened.
  std::uint64_t last_end_ns = now_ns();

 private:
  void open_ends(const Arena& arena, const Plan& plan, std::uint32_t worker);

  WorkerState state_ = WorkerState::kRunning;
};

}  // namespace remuda
