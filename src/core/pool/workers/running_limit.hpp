// Limits the number of workers that have commands at once. The other workers wait here, first come, first served.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace remuda {

class RunningLimit {
 public:
  // `most`: the number of workers that may have a turn at once.
  RunningLimit(std::uint32_t workers, std::uint32_t most) : running_(workers), most_(most) {}

  bool has(std::uint32_t worker) const { return running_[worker]; }
  bool any_waiting() const { return !waiting_.empty(); }

  // Returns whether the worker has a turn now. If not, the worker gets a place in the queue.
  bool ask(std::uint32_t worker) {
    if (running_[worker]) return true;
    if (count_ < most_) {
      take(worker);
      return true;
    }
    if (std::find(waiting_.begin(), waiting_.end(), worker) == waiting_.end()) waiting_.push_back(worker);
    return false;
  }
  // Gives the worker a turn for something urgent, beyond the limit if necessary.
  void take(std::uint32_t worker) {
    count_ += !running_[worker];
    running_[worker] = true;
  }
  void end(std::uint32_t worker) {
    count_ -= running_[worker];
    running_[worker] = false;
  }
  // Removes the worker that has waited longest from the queue, if a turn is free, and returns it. This gives it no turn
  // yet: the caller must `ask` for the turn, unless the worker has nothing left to do.
  std::optional<std::uint32_t> next() {
    if (waiting_.empty() || count_ >= most_) return std::nullopt;
    const std::uint32_t worker = waiting_.front();
    waiting_.pop_front();
    return worker;
  }

 private:
  std::vector<bool> running_;  // Whether each worker has a turn.
  std::uint32_t count_ = 0;    // The number of workers that have a turn.
  std::uint32_t most_;
  std::deque<std::uint32_t> waiting_;
};

}  // namespace remuda
