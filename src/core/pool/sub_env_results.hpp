// Holds the results of a vector env's sub-envs until all have come: when their worker dies in between, none has.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ipc/protocol.hpp"

namespace remuda {

class SubEnvResults {
 public:
  // `width`: so many neighbouring envs are one vector env.
  explicit SubEnvResults(std::uint32_t width) : width_(width) {}

  // Whether a worker may answer so next: whole vector envs come between others, their sub-envs in order.
  bool is_next(const Result& result) const {
    if (is_whole(width_, result)) return held_.empty();
    if (result.env % width_ != sub_envs_ || result.count > width_ - sub_envs_) return false;
    return held_.empty() || may_share_run(width_, held_.back(), result);
  }
  // Returns what can be dealt with now that this one, which is the next, is there: it, all of the vector env, or
  // nothing yet.
  std::vector<Result> add(const Result& result) {
    held_.push_back(result);
    sub_envs_ += result.count;
    if (sub_envs_ < width_) return {};
    sub_envs_ = 0;
    return std::exchange(held_, {});
  }
  void clear() {
    held_.clear();
    sub_envs_ = 0;
  }

 private:
  std::uint32_t width_;
  std::vector<Result> held_;
  std::uint32_t sub_envs_ = 0;  // of which it is
};

}  // namespace remuda
