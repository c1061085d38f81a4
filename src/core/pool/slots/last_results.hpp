// What each env's last result was, and the results that the pool makes from it for envs that are gone.
//
// Workers keep a copy of the last observation, reward and flags of each env in two rows beyond the frames, where the
// plan has them (`Plan::keeps_last`): only there can results be made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/plan.hpp"

namespace remuda {

class LastResults {
 public:
  struct Rows {  // a column
    std::byte* at;
    std::size_t bytes;  // of one row
    std::byte* row(std::uint32_t row) const { return at + row * bytes; }
  };
  // `columns`: reward, terminated, truncated, info mask, then the observation's leaves; `final_columns`: those leaves
  // of the observation that ended an episode; `computed`: the caller's own.
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

  // Another result of the env has come.
  void count(std::uint32_t env) {
    ++envs_[env].results;
    envs_[env].is_fresh = false;
  }
  std::uint64_t results(std::uint32_t env) const { return envs_[env].results; }
  // It was built anew since its last result and has not reset yet, so it knows of no observation.
  bool is_fresh(std::uint32_t env) const { return envs_[env].is_fresh; }
  void set_fresh(std::uint32_t env) { envs_[env].is_fresh = true; }

  // Where its last result is kept, and whether that ended an episode (and no same-step autoreset began the next one).
  std::uint32_t row_of(std::uint32_t env) const { return plan_.kept_row(env, envs_[env].results); }
  bool is_over(std::uint32_t env) const { return ends_episode(row_of(env)); }
  bool ends_episode(std::uint32_t row) const { return *at<bool>(kTerminated, row) || *at<bool>(kTruncated, row); }

  // The episode ended with that result.
  void truncate(std::uint32_t row) const { *at<bool>(kTruncated, row) = true; }

  // Makes a result: the last observation and computed columns once more, reward 0.
  void repeat(std::uint32_t env, std::uint32_t row) const;
  // The same, truncated; and the last result ended the episode, too.
  void end_episode(std::uint32_t env, std::uint32_t row);
  // All of the same that goes into the row but the observation, which is another env's, and the last observation as the
  // one that ended the episode.
  void end_before_reset(std::uint32_t env, std::uint32_t row);

 private:
  // Of the columns, which have no room for infos.
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
