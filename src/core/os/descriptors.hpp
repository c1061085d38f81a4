// File descriptors that are closed with their owner, and a reserve of descriptors for a process that has reached its
// limit of open files.
#pragma once

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <unistd.h>

#include <utility>
#include <vector>
#endif

namespace remuda {

#if REMUDA_LINUX

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  operator int() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A list that owns open file descriptors. `close` or the destructor closes all of them.
class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(Descriptors&&) = default;
  Descriptors(const Descriptors&) = delete;

  void add(int fd) { fds_.emplace_back(fd); }
  int at(std::size_t index) const { return fds_.at(index); }  // throws std::out_of_range
  std::vector<int> numbers() const { return {fds_.begin(), fds_.end()}; }

  // Gives up the first descriptor, which the caller must close.
  int take_first() {
    const int first = fds_.at(0).release();
    fds_.erase(fds_.begin());
    return first;
  }
  void close() { fds_.clear(); }

 private:
  std::vector<Descriptor> fds_;
};

#endif

// Opens as many reserve descriptors as a search through /proc needs at the same time, unless they are open already. Any
// thread may call this. The reserve is closed on exec.
void fill_reserve();

// Closes the reserve, so that other files can be opened. Returns whether any descriptor was closed.
bool spend_reserve();

}  // namespace remuda
