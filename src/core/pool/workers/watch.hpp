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
#include "os/wakeup.hpp"

namespace remuda {

class Watch {
 public:
  // `wakeup`: that of the arena, which must stay open until `close`.
  Watch(Wakeup wakeup, std::uint32_t workers) : wakeup_(wakeup), pidfds_(workers, -1) {}

  // Sets the descriptor (-1: none) that becomes readable when the worker's process ends.
  void set_process(std::uint32_t worker, int pidfd) {
    const std::lock_guard lock(mutex_);
    pidfds_[worker] = pidfd;
  }
  // Watches this descriptor permanently.
  void set_relay(int fd) {
    const std::lock_guard lock(mutex_);
    relay_ = fd;
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

  // Returns the workers with a process that has ended and is still set.
  std::vector<std::uint32_t> ended() const;
  // The longest time that the last sleep should have taken.
  Nanoseconds planned() const { return planned_; }

 private:
  static constexpr Nanoseconds kForever = std::chrono::hours(24);

  // Sets the time of the next sleep.
  void plan();

  const Wakeup wakeup_;
  mutable std::mutex mutex_;  // guards the next members
  std::vector<int> pidfds_;   // indexed by worker
  int relay_ = -1;
  Clock::time_point check_at_{};
  std::atomic<bool> is_closed_{false};
  Nanoseconds planned_ = kForever, reminder_ = kForever;  // only the supervisor uses these
};

}  // namespace remuda
