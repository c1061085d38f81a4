// The last result of each env, and the results that the pool makes from it when an env has failed.
//
// Workers copy the last observation, computed columns and flags of each env into two kept rows per env, if the plan has
// such rows (`Plan::keeps_last`). Without them the pool can make no results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pool/batches/batch.hpp"
#include "shm/plan.hpp"

namespace remuda {

class LastResults {
 public:
  LastResults(const Plan& plan, std::shared_ptr<const BatchColumns> columns)
      : plan_(plan), columns_(std::move(columns)), results_(plan.envs), is_fresh_(plan.envs) {}

  // Counts a result that has arrived from each of `count` neighbouring envs.
  void count(std::uint32_t first, std::uint32_t count) {
    std::uint64_t* results = &results_[first];
    for (std::uint32_t i = 0; i < count; ++i) ++results[i];
    std::fill_n(&is_fresh_[first], count, 0U);
  }
  std::uint64_t results(std::uint32_t env) const { return results_[env]; }
  // Returns whether the env was rebuilt and has not reset since, so that it has no observation.
  bool is_fresh(std::uint32_t env) const { return is_fresh_[env] != 0; }
  void set_fresh(std::uint32_t env, bool is_fresh = true) { is_fresh_[env] = is_fresh; }

  // `row_of` returns the row that keeps the last result of an env, and `is_over` whether this result ended the episode.
  // After a same-step autoreset, the episode is not over.
  std::uint32_t row_of(std::uint32_t env) const { return plan_.kept_row(env, results_[env]); }
  bool is_over(std::uint32_t env) const { return ends_episode(row_of(env)); }
  bool ends_episode(std::uint32_t row) const { return *at<bool>(kTerminated, row) || *at<bool>(kTruncated, row); }

  // Marks the result in this row as truncated.
  void truncate(std::uint32_t row) const { *at<bool>(kTruncated, row) = true; }

  // Makes a result in the row: the last observation and computed columns of the env again, with reward 0.
  void repeat(std::uint32_t env, std::uint32_t row) const;
  // Makes a result like `repeat`, but truncated. The kept result is marked as truncated, too.
  void end_episode(std::uint32_t env, std::uint32_t row);
  // Writes the end of the episode into a row that another env will complete with its reset: reward 0, truncated, and
  // the last observation as the terminal observation.
  void end_before_reset(std::uint32_t env, std::uint32_t row);

 private:
  template <class T>
  T* at(std::size_t column, std::uint32_t row) const {
    return reinterpret_cast<T*>(columns_->columns[column].row(row));
  }
  void copy_leaves(std::uint32_t env, const Column* to, std::uint32_t row) const;
  void set_flags(std::uint32_t row, bool truncated) const;

  const Plan& plan_;
  std::shared_ptr<const BatchColumns> columns_;
  std::vector<std::uint64_t> results_;  // These two are indexed by env.
  std::vector<std::uint32_t> is_fresh_;
};

}  // namespace remuda
