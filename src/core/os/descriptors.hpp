// Open file descriptors that are closed together, each once: by `close`, or with their owner.
#pragma once

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <unistd.h>

#include <vector>

namespace remuda {

class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() { close(); }

  // There is memory for one more: `add` does not fail then.
  void make_room() { fds_.reserve(fds_.size() + 1); }
  void add(int fd) { fds_.push_back(fd); }

  const std::vector<int>& all() const { return fds_; }
  std::size_t size() const { return fds_.size(); }
  int at(std::size_t index) const { return fds_.at(index); }  // throws std::out_of_range

  void close_first() {
    ::close(fds_.at(0));
    fds_.erase(fds_.begin());
  }
  void close() {
    for (int fd : fds_) ::close(fd);
    fds_.clear();
  }

 private:
  std::vector<int> fds_;
};

}  // namespace remuda

#endif
