// Messages that a worker's socket has taken, or brought, in part: which there are, and when they can go on.
//
// It moves no bytes, for that is whoever has the sockets' business, and waits for no socket alone.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/doorbell.hpp"

namespace remuda {

class Transfers {
 public:
  enum class Way { kRead, kWrite };

  explicit Transfers(std::uint32_t workers) : sockets_(workers) {}

  // The worker's socket from now on (-1: it has none, and messages go on whenever they are asked to), which stays the
  // caller's.  No message of it is under way.
  void open(std::uint32_t worker, int fd) {
    end(worker);
    sockets_[worker] = {fd};
  }
  // The rest of its messages will never come.
  void end(std::uint32_t worker) {
    note(worker, Way::kRead, false);
    note(worker, Way::kWrite, false);
  }
  // Some of a message is still to come, or to be taken; or it is whole.
  void note(std::uint32_t worker, Way way, bool is_partial);

  bool is_partial(std::uint32_t worker, Way way) const {
    return way == Way::kRead ? sockets_[worker].reading : sockets_[worker].writing;
  }
  bool any_writing() const { return writing_ != 0; }
  // When any message of a worker's last moved.
  Clock::time_point moved(std::uint32_t worker) const { return sockets_[worker].moved; }

  // Whether a message can go on; if so, it counts as moved.
  bool can_move(std::uint32_t worker, Way way);
  // Sleeps until one of them can go on, or a little while.  False, without having slept, where none is under way or has
  // moved lately: then they are looked at like all else that does not ring.
  bool sleep(Nanoseconds limit) const;

 private:
  struct Socket {
    int fd = -1;
    bool reading = false, writing = false;
    Clock::time_point moved = {};
  };

  std::vector<Socket> sockets_;              // by worker
  std::uint32_t reading_ = 0, writing_ = 0;  // how many of them are
  Clock::time_point moved_{};                // the last of them
};

}  // namespace remuda
