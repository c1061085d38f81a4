// Which workers may have commands at once: at most so many, and the others wait here, first come, first served.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace remuda {

class Turns {
 public:
  // `most`: of `workers`, how many may have a turn at once.
  Turns(std::uint32_t workers, std::uint32_t most) : running_(workers), most_(most) {}

  bool has(std::uint32_t worker) const { return running_[worker]; }
  bool any_waiting() const { return !waiting_.empty(); }

  // Whether the worker has a turn now; if not, it has a place in the line.
  bool ask(std::uint32_t worker) {
    if (running_[worker]) return true;
    if (count_ < most_) {
      take(worker);
      return true;
    }
    if (std::find(waiting_.begin(), waiting_.end(), worker) == waiting_.end()) waiting_.push_back(worker);
    return false;
  }
  // A turn for what cannot wait, however many have one.
  void take(std::uint32_t worker) {
    count_ += !running_[worker];
    running_[worker] = true;
  }
  void end(std::uint32_t worker) {
    count_ -= running_[worker];
    running_[worker] = false;
  }
  // Takes the worker that has waited longest from the line, if there is room for it.  It may have nothing to do any
  // more: only `ask` gives it the turn.
  std::optional<std::uint32_t> next() {
    if (waiting_.empty() || count_ >= most_) return std::nullopt;
    const std::uint32_t worker = waiting_.front();
    waiting_.pop_front();
    return worker;
  }

 private:
  std::vector<bool> running_;  // by worker
  std::uint32_t count_ = 0;    // of those
  std::uint32_t most_;
  std::deque<std::uint32_t> waiting_;
};

}  // namespace remuda
