// An event that any number of threads can wait for, at the same time and repeatedly.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "ipc/clock.hpp"

namespace remuda {

class Event {
 public:
  // Sets the event permanently, and wakes the threads that wait for it.
  void set() {
    {
      const std::lock_guard lock(mutex_);  // no thread may sleep between its look at the event and its wait
      is_set_.store(true);
    }
    changed_.notify_all();
  }
  bool is_set() const { return is_set_.load(); }

  // Returns whether the event is set within `limit`.
  bool wait(Nanoseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return is_set(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_set_{false};
};

}  // namespace remuda
