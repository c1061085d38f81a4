// Fills the rows of results in a worker: observation, reward, flags, infos, and the user's computed columns.
//
// The hooks (see loop.hpp) handle values that have no column or do not fit their column. The hooks return
// data without a column as bytes-like objects, the parts, which travel beside the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "shm/columns.hpp"
#include "shm/infos.hpp"
#include "shm/plan.hpp"
#include "worker/env_calls.hpp"
#include "worker/env_results.hpp"

namespace remuda {

class ResultRows {
 public:
  // The end of an episode, in a row that also receives the beginning of the next episode.
  struct End {
    std::uint64_t columns = 0;  // The mask of the info columns that hold data of the end.
    nb::object frozen = {};     // The data of the end without a column, pickled; null if there is none.
  };

  // `computed`: the columns that the user's functions compute from an env after each reset and step; the last
  // `step_columns` of them are step columns: they are computed after steps only, and are zeros in other rows.
  // `functions`: one for each of them; empty if the hooks write these columns, as they do for vector envs.
  ResultRows(const Arena& arena, const Plan& plan, const nb::object& hooks, nb::handle obs_nest,
             std::vector<Column> obs, std::vector<Column> final_obs, std::vector<nb::object> functions,
             std::vector<Column> computed, std::size_t step_columns);

  // -- values that an env returned; these functions raise if the values are invalid ----------------------------

  // Writes an observation, and appends its leaves without a column to `objects`.
  void write_obs(nb::handle obs, std::uint32_t row, Objects& objects) { write_leaves(obs_, obs, row, objects); }
  // Stores the terminal observation and info before the env resets, because envs reuse their buffers.
  End keep_end(nb::handle obs, nb::handle info, std::uint32_t row);
  // Makes the row's mask contain only the columns of the end, until the row is complete.
  void note_end(const End& end, std::uint32_t row) { info_mask_[row] = end.columns; }
  // Returns the end of the episode from a row that another worker began. A worker that died while it completed the row
  // may have set more bits in the mask; these are removed.
  End end_in(std::uint32_t row) const { return {info_mask_[row] & ~infos_.columns_of_steps()}; }
  // Writes the info into its columns. Returns the parts to send along with the row; null if there are none. May add to
  // `flags`, the flags of the result.
  nb::object write_info(const Objects& objects, nb::handle info, const End& end, std::uint32_t row,
                        std::uint32_t& flags);
  // Writes the computed columns, except the step columns, for the env's current state, and copies the values to `kept`,
  // for `repeat_computed`. The hooks convert a value that does not fit its column. If a function raises, they raise an
  // error that names it.
  void write_computed(nb::handle env, std::uint32_t row, std::vector<std::byte>& kept, EnvCalls& calls) const;
  // Writes the step columns. Called right after a step, before a same-step autoreset changes the env.
  void write_step_columns(nb::handle env, std::uint32_t row, EnvCalls& calls) const {
    for (std::size_t i = num_state_columns_; i < computed_.size(); ++i) write_computed_column(i, env, row, calls);
  }

  // Returns a digest of the observation and the info in a row, and of the reward and the flags if it `is_step`. It
  // depends on the values, not on whether they have columns. The info of an episode's last row does not count: wrappers
  // put the time that the episode took there. `objects`: the leaves of the observation without a column.
  std::uint64_t digest(const Objects& objects, nb::handle info, std::uint32_t row, bool is_step) const;

  // -- reward and flags ----------------------------------------------------------------------------------------

  // Writes the reward of a step, and returns what `reward` returns. Raises if it is no number, or no vector of the
  // length that the env has declared.
  double write_reward(nb::handle reward, std::uint32_t row) {
    if (reward_width_ == 1) return *reward_at(row) = number(reward);
    copy_numbers(reward, reward_at(row), reward_width_);
    return this->reward(row);
  }
  // Sets the reward and the step columns to zero, in a row that has no step.
  void clear_reward(std::uint32_t row) const;
  // Returns the reward in a row; the sum of its numbers if it is a vector.
  double reward(std::uint32_t row) const { return std::accumulate(reward_at(row), reward_at(row + 1), 0.0); }
  void write_flags(std::uint32_t row, bool terminated, bool truncated) {
    terminated_[row] = terminated;
    truncated_[row] = truncated;
  }
  bool ends_episode(std::uint32_t row) const { return terminated_[row] || truncated_[row]; }

  // -- copies of rows ------------------------------------------------------------------------------------------

  void repeat_computed(const std::vector<std::byte>& kept, std::uint32_t row) const;
  // Copies a row to the kept row `kept`, see `Plan::kept_row`. `is_over`: whether the episode is over after this row.
  // It is not after a same-step autoreset.
  void keep(std::uint32_t row, std::uint32_t kept, bool is_over) const;

  void add_info_column(const nb::tuple& path, nb::object type, Column column) {
    infos_.add(path, std::move(type), std::move(column));
  }

  std::vector<nb::object>& functions() { return functions_; }

 private:
  nb::object compute(std::size_t index, nb::handle env, EnvCalls& calls) const;
  void write_computed_column(std::size_t index, nb::handle env, std::uint32_t row, EnvCalls& calls) const;
  double* reward_at(std::uint32_t row) const { return reward_ + row * reward_width_; }
  Fit write_leaves(const std::vector<Column>& columns, nb::handle obs, std::uint32_t row, Objects& objects);

  const nb::object& hooks_;
  Nest obs_nest_;
  std::vector<Column> obs_, final_obs_;
  std::vector<nb::object> functions_;
  std::vector<Column> computed_;
  std::size_t num_state_columns_;  // Those of the computed columns that are no step columns; they come first.
  InfoWriter infos_;
  double* reward_;
  std::size_t reward_width_;  // The numbers of a reward: more than 1 if rewards are vectors.
  bool* terminated_;
  bool* truncated_;
  std::uint64_t* info_mask_;
};

}  // namespace remuda
