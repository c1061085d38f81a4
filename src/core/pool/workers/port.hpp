// The pool's access to one worker: the pool's ends of its rings, and the worker's state.
//
//   coming          -> serving        it has built its envs, and takes the commands that were sent meanwhile
//   coming          -> dead           it will have no successor
//   serving         -> late           it has missed a deadline, which is reported once
//   serving, late   -> corrupt        its results are unsound: nothing more is read from it
//   serving, late,
//   corrupt         -> dead           its process has ended; its published results were read before
//   dead            -> coming         it will have a successor, with an empty port
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
  // Throws std::logic_error for a change that is not in the table above.
  void become(PortState state);
  // Returns whether results are read in this state; whether commands are published.
  bool is_read() const { return state_ == PortState::kServing || state_ == PortState::kLate; }
  bool is_published() const { return state_ != PortState::kComing && state_ != PortState::kDead; }

  // Resets rings and bells for the successor of a dead worker.
  void reopen(const Arena& arena, const Plan& plan, std::uint32_t worker);

  bool hosts(std::uint32_t env) const { return env - first_env < envs; }
  // The task that the worker is at, by its own word; see Task. The worker may have finished it already, which its
  // results show. It may also have overwritten the word: `is_at` rejects a finished task, and one that began in the
  // future or before this worker's life.
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
  std::uint32_t width;                   // of each env
  std::uint32_t outstanding = 0;         // commands and messages that are sent and not yet answered
  std::vector<std::uint64_t> messages;   // the sequences of outstanding messages
  bool has_unpublished = false;          // commands
  Clock::time_point heard = {};          // the worker's last sign of progress, or the start of its work; for deadlines
  std::uint64_t last_end_ns = now_ns();  // when its last result was ready, by its clock; at first: when this opened

 private:
  void open_ends(const Arena& arena, const Plan& plan, std::uint32_t worker);

  PortState state_ = PortState::kServing;
};

}  // namespace remuda
