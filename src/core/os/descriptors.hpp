// A list that owns open file descriptors. `close` or the destructor closes all of them.
#pragma once

#include <vector>

#include "os/descriptor.hpp"

#if REMUDA_LINUX

namespace remuda {

class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // Reserves memory for one more descriptor, so that the next `add` cannot fail.
  void make_room() { fds_.reserve(fds_.size() + 1); }
  void add(int fd) { fds_.emplace_back(fd); }

  std::size_t size() const { return fds_.size(); }
  int at(std::size_t index) const { return fds_.at(index); }  // throws std::out_of_range
  std::vector<int> numbers() const { return {fds_.begin(), fds_.end()}; }

  void close_first() {
    at(0);  // throws if the list is empty
    fds_.erase(fds_.begin());
  }
  void close() { fds_.clear(); }

 private:
  std::vector<Descriptor> fds_;
};

}  // namespace remuda

#endif
