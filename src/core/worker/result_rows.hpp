// The rows of results as the worker fills them: observation, reward, flags, infos, and the caller's own columns.
//
// What has no column, or does not fit into its own as it is, goes through the hooks (see loop.hpp), and what these make
// of it travels beside the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/columns.hpp"
#include "shm/infos.hpp"
#include "shm/plan.hpp"
#include "worker/computed_columns.hpp"

namespace remuda {

class ResultRows {
 public:
  // The end of an episode, in a row that is to hold the beginning of the next one too.
  struct End {
    std::uint64_t columns = 0;  // its info columns
    nb::object frozen = {};     // what has no column; null: nothing
  };

  ResultRows(const Arena& arena, const Plan& plan, const nb::object& hooks, nb::handle obs_nest,
             std::vector<Column> obs, std::vector<Column> final_obs, ComputedColumns computed);

  // -- what an env returned; each raises what does not fit -----------------------------------------------------

  // Leaves without a column are put into `objects`.
  void write_obs(nb::handle obs, std::uint32_t row, Objects& objects) { write_leaves(obs_, obs, row, objects); }
  // The terminal observation and info are copied before the reset: envs reuse their buffers.
  End keep_end(nb::handle obs, nb::handle info, std::uint32_t row);
  // The mask tells of the end alone, until the row is complete.
  void note_end(const End& end, std::uint32_t row) { info_mask_[row] = end.columns; }
  // Of an episode whose row somebody else has begun. (The mask may have bits of a worker, too, that died when it had
  // begun to complete the row.)
  End end_in(std::uint32_t row) const { return {info_mask_[row] & ~infos_.columns_of_steps()}; }
  // Writes the info into its columns; returns what is to be sent along with the row, null when there is nothing.
  // `flags`: of its result.
  nb::object write_info(const Objects& objects, nb::handle info, const End& end, std::uint32_t row,
                        std::uint32_t& flags);
  // The columns that are computed of the env as it is now, which are kept for `repeat_computed`.
  void write_computed(nb::handle env, std::uint32_t row, std::vector<std::byte>& kept) const;

  // -- what the worker says of it ------------------------------------------------------------------------------

  void write_flags(std::uint32_t row, double reward, bool terminated, bool truncated) {
    reward_[row] = reward;
    terminated_[row] = terminated;
    truncated_[row] = truncated;
  }
  double reward(std::uint32_t row) const { return reward_[row]; }
  bool ends_episode(std::uint32_t row) const { return terminated_[row] || truncated_[row]; }

  // -- rows again ----------------------------------------------------------------------------------------------

  void repeat_computed(const std::vector<std::byte>& kept, std::uint32_t row) const;
  // Keeps a row for the pool, see `Plan::kept_row`.  `is_over`: whether an episode that it ended is over for the next
  // command too; after a same-step autoreset it is not.
  void keep(std::uint32_t row, std::uint32_t kept, bool is_over) const;

  void add_info_column(const nb::tuple& path, nb::object type, Column column) {
    infos_.add(path, std::move(type), std::move(column));
  }

  // For Python's garbage collector.
  int visit(visitproc visit, void* arg) const { return computed_.visit(visit, arg); }
  void clear() { computed_.clear(); }

 private:
  Fit write_leaves(const std::vector<Column>& columns, nb::handle obs, std::uint32_t row, Objects& objects);

  const nb::object& hooks_;
  Nest obs_nest_;
  std::vector<Column> obs_, final_obs_;
  ComputedColumns computed_;
  InfoWriter infos_;
  double* reward_;
  bool* terminated_;
  bool* truncated_;
  std::uint64_t* info_mask_;
};

}  // namespace remuda
