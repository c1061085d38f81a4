// The last result of each env, and the results that the pool makes from it when an env has failed.
//
// Workers copy the last observation, reward and flags of each env into two rows beyond the frames, if the plan has
// these rows (`Plan::keeps_last`). The pool can make results only if it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/plan.hpp"

namespace remuda {

class LastResults {
 public:
  struct Rows {  // the memory of one column
    std::byte* at;
    std::size_t bytes;  // of one row
    std::byte* row(std::uint32_t row) const { return at + row * bytes; }
  };
  // `columns`: reward, terminated, truncated, info mask, then the leaves of the observation. `final_columns`: the same
  // leaves of the observation that ended an episode. `computed`: the columns that the user's functions fill.
  LastResults(const Plan& plan, std::vector<Rows> columns, std::vector<Rows> final_columns,
              std::vector<Rows> computed = {})
      : plan_(plan),
        columns_(std::move(columns)),
        final_columns_(std::move(final_columns)),
        computed_(std::move(computed)),
        envs_(plan.envs) {}

  const std::vector<Rows>& columns() const { return columns_; }
  const std::vector<Rows>& final_columns() const { return final_columns_; }
  const std::vector<Rows>& computed() const { return computed_; }

  // Counts a result that has arrived.
  void count(std::uint32_t env) {
    ++envs_[env].results;
    envs_[env].is_fresh = false;
  }
  std::uint64_t results(std::uint32_t env) const { return envs_[env].results; }
  // Returns whether the env was rebuilt since its last result and has not reset yet. Such an env has no observation.
  bool is_fresh(std::uint32_t env) const { return envs_[env].is_fresh; }
  void set_fresh(std::uint32_t env) { envs_[env].is_fresh = true; }

  // The row that keeps the last result of an env, and whether that result ended the episode. After a same-step
  // autoreset, the episode is not over.
  std::uint32_t row_of(std::uint32_t env) const { return plan_.kept_row(env, envs_[env].results); }
  bool is_over(std::uint32_t env) const { return ends_episode(row_of(env)); }
  bool ends_episode(std::uint32_t row) const { return *at<bool>(kTerminated, row) || *at<bool>(kTruncated, row); }

  // Marks the result in this row as the end of its episode.
  void truncate(std::uint32_t row) const { *at<bool>(kTruncated, row) = true; }

  // Writes a result into the row: the last observation and computed columns again, with reward 0.
  void repeat(std::uint32_t env, std::uint32_t row) const;
  // Writes a result like `repeat`, but truncated. The kept last result then ends its episode, too.
  void end_episode(std::uint32_t env, std::uint32_t row);
  // Completes a row if the reset of another env will supply its observation: writes reward 0, truncated, and the last
  // observation as the final observation.
  void end_before_reset(std::uint32_t env, std::uint32_t row);

 private:
  // The index of the first leaf in the columns here, which do not include the one for infos.
  static constexpr std::size_t kFirstOfLeaves = kFirstLeaf - 1;
  struct Env {
    std::uint64_t results = 0;
    bool is_fresh = false;
  };

  template <class T>
  T* at(std::size_t column, std::uint32_t row) const {
    return reinterpret_cast<T*>(columns_[column].row(row));
  }
  void copy_leaves(std::uint32_t env, const Rows* to, std::uint32_t row) const;
  void set_flags(std::uint32_t row, bool truncated) const;

  const Plan& plan_;
  std::vector<Rows> columns_, final_columns_, computed_;
  std::vector<Env> envs_;
};

}  // namespace remuda
