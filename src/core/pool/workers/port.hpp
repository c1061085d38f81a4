// The pool's access to one worker: the pool's ends of its rings, and the worker's state. The state changes
//
//   coming          -> serving        when the successor of a dead worker has built its envs
//   coming          -> dead           when it turns out that the dead worker will have no successor
//   serving         -> late           when the worker misses a deadline, which is reported once
//   late            -> serving        when the worker is a thread, which cannot be killed
//   serving, late   -> corrupt        when a result is unsound; nothing more is read from this worker
//   serving, late,
//   corrupt         -> dead           when its process has ended, and its published results were read
//   dead            -> coming         when it will have a successor, with an empty port
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/clock.hpp"
#include "shm/plan.hpp"

namespace remuda {

enum class PortState : std::uint8_t { kComing, kServing, kLate, kCorrupt, kDead };

class Port {
 public:
  Port(const Arena& arena, const Plan& plan, std::uint32_t worker, std::uint32_t first_env, std::uint32_t envs);

  PortState state() const { return state_; }
  // Changes the state. Throws std::logic_error if the table at the top of this file does not permit the change.
  void become(PortState state);
  // `is_read`: whether the pool reads the worker's results in this state. `is_published`: whether it publishes commands
  // to the worker.
  bool is_read() const { return state_ == PortState::kServing || state_ == PortState::kLate; }
  bool is_published() const { return state_ != PortState::kComing && state_ != PortState::kDead; }

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

  PortState state_ = PortState::kServing;
};

}  // namespace remuda
