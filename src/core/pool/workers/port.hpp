// A worker as the pool reaches it: the pool's ends of its rings, and what state it is in.
//
//   coming          -> serving        it has built its envs, and takes what was sent meanwhile
//   coming          -> dead           there will be none
//   serving         -> late           it has missed a deadline; that is told once
//   serving, late   -> corrupt        what it said makes no sense: nothing more is read from it
//   serving, late,
//   corrupt         -> dead           its process has ended; what it had published was read before
//   dead            -> coming         it will have a successor, whose port is as new
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
  // Throws std::logic_error where the table above has no such line.
  void become(PortState state);
  // Whether its results are read; whether its commands are published.
  bool is_read() const { return state_ == PortState::kServing || state_ == PortState::kLate; }
  bool is_published() const { return state_ != PortState::kComing && state_ != PortState::kDead; }

  // For the successor of one that is dead: rings and bells as new.
  void reopen(const Arena& arena, const Plan& plan, std::uint32_t worker);

  bool hosts(std::uint32_t env) const { return env - first_env < envs; }
  // What it does, by its own word: see Task.  It may have ended that already, of which its results tell, and it may
  // have overwritten the word: then it would have begun after now, or before its life here.
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
  std::uint32_t outstanding = 0;         // commands and messages sent and not yet answered
  std::vector<std::uint64_t> messages;   // of those: the messages, by sequence
  bool has_unpublished = false;          // commands
  Clock::time_point heard = {};          // its last sign of progress, or when it was given work; for deadlines
  std::uint64_t last_end_ns = now_ns();  // when its last result was ready, by its own clock; before: when it opened

 private:
  void open_ends(const Arena& arena, const Plan& plan, std::uint32_t worker);

  PortState state_ = PortState::kServing;
};

}  // namespace remuda
