// Wakes the supervisor of a pool, from any thread of any process that has its descriptor.
//
// A copy refers to the same wakeup, and owns nothing: on Linux, whoever made the descriptor closes it.
#pragma once

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#else
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "ipc/clock.hpp"
#endif

namespace remuda {

#if REMUDA_LINUX

class Wakeup {
 public:
  // `fd`: an eventfd, which is readable from `wake` until `clear`. -1: `wake` does nothing.
  explicit Wakeup(int fd = -1) : fd_(fd) {}
  static Wakeup create() { return Wakeup(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);  // fails only if it is readable anyway
  }
  void clear() const {
    std::uint64_t count;
    [[maybe_unused]] const auto read = ::read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
};

#else

// All workers are threads of this process.
class Wakeup {
 public:
  explicit Wakeup(int = -1) {}
  static Wakeup create() {
    Wakeup wakeup;
    wakeup.state_ = std::make_shared<State>();
    return wakeup;
  }
  int fd() const { return -1; }
  void close() {}
  void wake() const {
    if (!state_) return;
    {
      const std::lock_guard lock(state_->mutex);
      state_->is_awake = true;
    }
    state_->changed.notify_all();
  }
  // Waits for `wake`, but at most for `limit`, and clears it.
  void wait(Nanoseconds limit) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, limit, [this] { return state_->is_awake; });
    state_->is_awake = false;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_awake = false;
  };
  std::shared_ptr<State> state_;
};

#endif

}  // namespace remuda
