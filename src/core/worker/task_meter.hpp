// Records the current task of a worker, and the statistics of its envs. The pool reads the task for deadlines and death
// reports.
//
// The records lie in the arena, and a successor continues them. Any thread may read them; only the worker's thread
// writes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ipc/clock.hpp"
#include "ipc/protocol.hpp"
#include "os/this_thread.hpp"
#include "shm/figures.hpp"
#include "shm/plan.hpp"

namespace remuda {

// Measures the CPU time of a worker's thread for statistics, with one system call per millisecond.
//
// For a thread that only runs commands and waits, the CPU time is its total minus its spinning. A thread that does
// other work between two batches (the pool's caller, if it runs the commands itself) calls `begin` before each batch.
class CpuMeter {
 public:
  static constexpr std::uint64_t kInterval = 1'000'000;  // ns

  explicit CpuMeter(std::uint64_t (*cpu_ns)() = thread_cpu_ns) : cpu_ns_(cpu_ns) {}

  // Begins a measurement: excludes the CPU time that the thread has used so far.
  void begin(Nanoseconds spun) { look(spun); }
  // Whether kInterval has passed since the last measurement.
  bool is_due(std::uint64_t now) const { return now - looked_at_ >= kInterval; }
  // Returns the CPU time in ns that the thread used since the last measurement, without spinning. `spun`: the thread's
  // total spinning time.
  std::uint64_t used(std::uint64_t now, Nanoseconds spun) {
    const std::uint64_t before = used_;
    const Nanoseconds spun_before = spun_;
    look(spun);
    looked_at_ = now;
    // The spinning time is measured less precisely than the CPU time, so it may be the greater one.
    const auto spinning = static_cast<std::uint64_t>((spun_ - spun_before).count());
    return used_ - before - std::min(used_ - before, spinning);
  }

 private:
  void look(Nanoseconds spun) {
    used_ = cpu_ns_();
    spun_ = spun;
  }

  std::uint64_t (*cpu_ns_)();
  std::uint64_t used_ = 0;  // The total CPU time at the last measurement.
  Nanoseconds spun_{0};     // The total spinning time at the last measurement.
  std::uint64_t looked_at_ = 0;
};

class TaskMeter {
 public:
  // `env_figures`: indexed by the env's number in the pool.
  TaskMeter(Meter& meter, EnvFigures* env_figures) : meter_(meter), env_figures_(env_figures) {
    meter_.pid.store(process_id(), std::memory_order_relaxed);
  }

  // -- the current task ----------------------------------------------------------------------------------------

  // Begins a command.
  void begin_command(Op op, std::uint32_t env, std::uint64_t now) {
    has_stepped_ = false;
    resetting_ = 0;
    begin(op, env, now);
  }
  // Begins a task within a command: a step may include a reset of the env, and a reset may include a rebuild.
  void begin(Op op, std::uint32_t env, std::uint64_t now) {
    meter_.env.store(env, std::memory_order_relaxed);
    meter_.task.store(Task::pack(op, now), std::memory_order_release);
  }
  // Ends the current task. Called after the results were published: a reader that sees no task also sees the results.
  void end() { meter_.task.store(0, std::memory_order_release); }

  bool is_at(std::uint64_t task) const { return meter_.task.load(std::memory_order_acquire) == task; }
  Op doing() const { return Task::op(meter_.task.load(std::memory_order_relaxed)); }
  // Returns the env of the current task; nullopt if there is no task, or it is for the whole worker.
  std::optional<std::uint32_t> current_env() const {
    const bool is_idle = meter_.task.load(std::memory_order_relaxed) == 0;
    const std::uint32_t env = meter_.env.load(std::memory_order_relaxed);
    return is_idle || env == kWholeWorker ? std::nullopt : std::optional(env);
  }

  // -- statistics ----------------------------------------------------------------------------------------------

  // Records that the current command steps the env.
  void note_step() { has_stepped_ = true; }
  // Counts a reset, which may be part of a step. The durations of steps exclude resets and renewals.
  void note_reset(std::uint32_t env, std::uint64_t ns) {
    env_figures_[env].resets.note(ns);
    resetting_ += ns;
  }
  void note_renewal(std::uint64_t ns) { resetting_ += ns; }
  void note_episode(std::uint32_t env, double reward, std::uint64_t steps) {
    env_figures_[env].note_episode(reward, steps);
  }
  void note_result(const Result& result) {
    const std::uint64_t took = result.end_ns - result.begin_ns;
    add(meter_.steps, result.flags & kIsMessage ? 0 : result.count);
    note_busy(took);
    if (has_stepped_) env_figures_[result.env].steps.note(took - std::min(took, resetting_));
  }
  void note_busy(std::uint64_t ns) { add(meter_.busy_ns, ns); }
  void note_cpu(std::uint64_t ns) { add(meter_.cpu_ns, ns); }

 private:
  Meter& meter_;
  EnvFigures* env_figures_;
  // Whether the current command has stepped the env.
  bool has_stepped_ = false;
  // The time in ns of resets and renewals within the current command.
  std::uint64_t resetting_ = 0;
};

}  // namespace remuda
