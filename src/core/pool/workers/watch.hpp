// The sleep of the pool's supervisor: until a process ends, a descriptor is readable, an alarm is due, or `wake`.
//
// The pool owns the descriptors, and may close them and open others with the same numbers. Therefore nothing is
// registered with the kernel, as epoll would require. Each wait polls the descriptors that are set at that moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "ipc/clock.hpp"
#include "ipc/running_clock.hpp"
#include "os/wakeup.hpp"

namespace remuda {

class Watch {
 public:
  // `wakeup`: that of the arena, which must stay open until `close`. `need_gil`: whether the workers, or the
  // threads that pass on their results, need the GIL of this process.
  Watch(Wakeup wakeup, std::uint32_t workers, bool need_gil = false)
      : wakeup_(wakeup), pidfds_(workers, -1), need_gil_(need_gil) {}

  // Sets the descriptor (-1: none) that becomes readable when the worker's process ends.
  void set_process(std::uint32_t worker, int pidfd) {
    const std::lock_guard lock(mutex_);
    pidfds_[worker] = pidfd;
  }
  // Watches this descriptor, which is readable while workers have sent log records.
  void set_relay(int fd) {
    const std::lock_guard lock(mutex_);
    relay_ = fd;
  }
  // Makes log records end the next sleep. They end one sleep only, because the supervisor leaves them to other threads.
  void await_records() {
    if (!awaits_records_.exchange(true)) wake();
  }
  // Sets the time at which a worker may miss a deadline. {}: never.
  void check_at(Clock::time_point time) {
    const std::lock_guard lock(mutex_);
    check_at_ = time;
  }

  // Makes the next sleep end within this time.
  void remind(Nanoseconds time) { reminder_ = time; }

  // Sleeps until there is something to do. Returns false once `close` was called. Only the supervisor calls it, without
  // the GIL.
  bool wait();
  // Ends the sleep. Any thread may call it.
  void wake() const {
    if (!is_closed_.load()) wakeup_.wake();
  }
  void close() {
    if (!is_closed_.exchange(true)) wakeup_.wake();
  }

  // Looks at the clock, once the supervisor has the GIL and the turn. Returns the time. The wait for them counts as
  // frozen if the workers need the GIL, too: an env must not miss its deadline because the learner holds the GIL.
  Clock::time_point look() {
    const auto now = Clock::now();
    need_gil_ ? clock_.look(now, planned_ + RunningClock::kStall) : clock_.look_awake(now);
    return now;
  }
  // The clock for deadlines.
  const RunningClock& clock() const { return clock_; }

  // Returns the workers with a process that has ended and is still set.
  std::vector<std::uint32_t> ended() const;
  // The longest time that the last sleep should have taken.
  Nanoseconds planned() const { return planned_; }

 private:
  static constexpr Nanoseconds kForever = std::chrono::hours(24);

  // Sets the time of the next sleep.
  void plan();
  // Looks at the clock after a sleep.
  void note_sleep() {
    if (!need_gil_) clock_.look(Clock::now(), planned_ + RunningClock::kStall);
  }

  const Wakeup wakeup_;
  mutable std::mutex mutex_;  // guards the next members
  std::vector<int> pidfds_;   // indexed by worker
  int relay_ = -1;
  Clock::time_point check_at_{};
  std::atomic<bool> is_closed_{false}, awaits_records_{true};
  const bool need_gil_;
  // Only the supervisor uses these.
  Nanoseconds planned_ = kForever, reminder_ = kForever;
  RunningClock clock_;
};

}  // namespace remuda
