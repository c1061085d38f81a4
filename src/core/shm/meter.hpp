// The current task of a worker, in the arena, where the pool reads it for deadlines and death reports.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ipc/protocol.hpp"
#include "shm/figures.hpp"

namespace remuda {

// An op and its start time in one word, so that a reader never combines the op of one task with the start of another.
struct Task {
  static std::uint64_t pack(Op op, std::uint64_t begin_ns) {
    return (begin_ns & ~kOpMask) | (static_cast<std::uint64_t>(op) + 1);
  }
  static Op op(std::uint64_t task) { return static_cast<Op>((task & kOpMask) - 1); }
  // Whether the word can be a task. Otherwise an env has corrupted the memory.
  static bool is_sound(std::uint64_t task) { return (task & kOpMask) != 0 && op(task) <= Op::kResume; }
  static std::uint64_t begin_ns(std::uint64_t task) { return task & ~kOpMask; }
  // Whether the task was already over at `end_ns`, when its worker last finished something. A worker clears the word
  // only after it publishes the task's result, and may die in between.
  static bool is_over(std::uint64_t task, std::uint64_t end_ns) { return (task | kOpMask) < end_ns; }

 private:
  static constexpr std::uint64_t kOpMask = 15;
};

// The current task of a worker, and counts of its work. Only the worker's thread writes them; any thread may read them
// at any time. The counts do not order other memory accesses.
struct Meter {
  alignas(64) std::atomic<std::uint64_t> steps;  // The number of rows filled by steps and resets.
  std::atomic<std::uint64_t> busy_ns;            // The wall time in which commands were executed.
  std::atomic<std::uint64_t> cpu_ns;             // CPU time without spinning, at most a millisecond out of date.
  std::atomic<std::uint64_t> task;               // The current task, see `Task`; 0: the worker is idle.
  std::atomic<std::uint32_t> env;                // The env of the current task, or kWholeWorker.
  std::atomic<std::uint32_t> pid;                // The pid of the worker's process; 0: not started.

  // Begins a command, or a task within it: a step may include a reset of the env, and a reset may include a rebuild.
  void begin(Op op, std::uint32_t its_env, std::uint64_t now) {
    env.store(its_env, std::memory_order_relaxed);
    task.store(Task::pack(op, now), std::memory_order_release);
  }
  // Ends the current task. Called after the results were published: a reader that sees no task also sees the results.
  void end() { task.store(0, std::memory_order_release); }
  Op doing() const { return Task::op(load(task)); }
  // Returns the env of the current task; nullopt if there is no task, or it is for the whole worker.
  std::optional<std::uint32_t> current_env() const {
    const std::uint32_t its_env = env.load(std::memory_order_relaxed);
    return load(task) == 0 || its_env == kWholeWorker ? std::nullopt : std::optional(its_env);
  }
};
static_assert(sizeof(Meter) == 64);

inline constexpr Field kFieldsOfMeter[] = {
    {"steps", "u8", 1, offsetof(Meter, steps)},   {"busy_ns", "u8", 1, offsetof(Meter, busy_ns)},
    {"cpu_ns", "u8", 1, offsetof(Meter, cpu_ns)}, {"task", "u8", 1, offsetof(Meter, task)},
    {"env", "u4", 1, offsetof(Meter, env)},       {"pid", "u4", 1, offsetof(Meter, pid)},
};

}  // namespace remuda
