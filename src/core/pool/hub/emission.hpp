// Lets one thread at a time emit the log records of a pool. Log handlers are code of the program: they may block, and
// may wait for a lock of a thread that wants to emit, too. So that thread waits only while the other one makes
// progress. The records that it leaves are emitted by the other thread.
//
// The class uses no Python. Any thread may call any function, without the GIL.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "ipc/clock.hpp"

namespace remuda {

class Emission {
 public:
  static constexpr Nanoseconds kPatience = std::chrono::milliseconds(500);  // the time that one record may take

  // Returns whether this thread may emit records: no other thread does so, and it is not in a log handler.
  bool begin(unsigned long thread) {
    std::unique_lock lock(mutex_);
    if (emitter_ == thread) return false;
    while (emitter_ != 0)
      if (is_free_.wait_until(lock, began_ + kPatience) == std::cv_status::timeout && emitter_ != 0 &&
          Clock::now() >= began_ + kPatience) {
        has_left_ = true;
        return false;
      }
    emitter_ = thread;
    began_ = Clock::now();
    return true;
  }
  // Notes that the thread has emitted a record.
  void progress() {
    const std::lock_guard lock(mutex_);
    began_ = Clock::now();
  }
  // Ends the emission, unless another thread has left records meanwhile. Returns whether it has ended.
  bool try_end() {
    const std::lock_guard lock(mutex_);
    began_ = Clock::now();
    if (std::exchange(has_left_, false)) return false;
    free();
    return true;
  }
  // Ends the emission after an error.
  void end() {
    const std::lock_guard lock(mutex_);
    has_left_ = false;
    free();
  }

 private:
  void free() {
    emitter_ = 0;
    is_free_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable is_free_;
  unsigned long emitter_ = 0;  // the thread that emits records; 0: none
  bool has_left_ = false;      // whether another thread has left records to the emitter
  Clock::time_point began_{};  // the time of its begin, or of its latest record
};

}  // namespace remuda
