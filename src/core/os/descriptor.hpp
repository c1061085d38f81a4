// A file descriptor that is closed with its owner, and a reserve of descriptors for a process that has reached its
// limit of open files.
#pragma once

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <unistd.h>

#include <utility>
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

 private:
  int fd_;
};

#endif

// Opens as many reserve descriptors as a search through /proc needs at the same time, unless they are open already. Any
// thread may call this. The reserve is closed on exec.
void fill_reserve();

// Closes the reserve, so that other files can be opened. Returns whether any descriptor was closed.
bool spend_reserve();

}  // namespace remuda
