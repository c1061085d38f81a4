// Counts the episodes, steps and seeds of each env in the arena. The pool can read the counts, and a successor of the
// worker continues them. See `Progress`.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/figures.hpp"
#include "shm/plan.hpp"

namespace remuda {

class EnvCounts {
 public:
  explicit EnvCounts(Progress* progress) : progress_(progress) {}  // `progress`: indexed by env

  // -- episodes and steps ------------------------------------------------------------------------------------

  bool has_begun(std::uint32_t env) const { return load(progress_[env].resets) != 0; }
  std::uint64_t steps(std::uint32_t env) const { return load(progress_[env].steps); }
  void begin_episode(std::uint32_t env) {
    add(progress_[env].resets, 1);
    set_steps(env, 0);
  }
  void count_step(std::uint32_t env) { add(progress_[env].steps, 1); }
  void set_steps(std::uint32_t env, std::uint64_t steps) {
    progress_[env].steps.store(steps, std::memory_order_relaxed);
  }
  void set_needs_reset(std::uint32_t env, bool needs_reset) {
    progress_[env].needs_reset.store(needs_reset, std::memory_order_relaxed);
  }

  std::uint64_t results(std::uint32_t env) const { return load(progress_[env].results); }
  // Called after the row was copied to a kept row. The release store makes the kept row visible to the pool.
  void set_results(std::uint32_t env, std::uint64_t results) {
    progress_[env].results.store(results, std::memory_order_release);
  }

  // -- seeds -------------------------------------------------------------------------------------------------

  // Returns the number, from 0, of the seed for the current reset, among the seeds derived from `base`. `in_each`:
  // whether each reset has such a seed, or only some. Returns 0 if the env had another base so far.
  std::uint64_t next_seed(std::uint32_t env, std::uint64_t base, bool in_each) const {
    const Progress& its = progress_[env];
    if (load(its.seed_base) != base) return 0;
    return (in_each ? load(its.resets) : load(its.seeded_at) + 1) - load(its.counted_from);
  }
  // Records that the current reset uses the n-th seed of `base`.
  void note_seed(std::uint32_t env, std::uint64_t base, std::uint64_t n) {
    Progress& its = progress_[env];
    const std::uint64_t resets = load(its.resets);
    its.counted_from.store(resets - n, std::memory_order_relaxed);
    its.seeded_at.store(resets, std::memory_order_relaxed);
    // The base is stored last. If the worker dies before, the env still has its old base, and no reset counts as seeded
    // from `base`.
    its.seed_base.store(base, std::memory_order_release);
  }
  // The seed counts of an env, to restore them later with `give_back`.
  struct Seeds {
    std::uint64_t base = 0, seeded_at = 0, counted_from = 0;
    bool operator==(const Seeds&) const = default;
  };
  Seeds seeds(std::uint32_t env) const {
    const Progress& its = progress_[env];
    return {load(its.seed_base), load(its.seeded_at), load(its.counted_from)};
  }
  // Undoes the effect of the latest reset, which was discarded, on the seed counts. `before`: the counts before that
  // reset. The next reset gets the seed that the discarded reset used.
  void give_back(std::uint32_t env, const Seeds& before) {
    Progress& its = progress_[env];
    its.counted_from.store(before.counted_from, std::memory_order_relaxed);
    its.seeded_at.store(before.seeded_at, std::memory_order_relaxed);
    its.seed_base.store(before.base, std::memory_order_release);
    keep_seed(env);
  }
  // Adjusts the seed counts after a reset that was counted but takes no seed. Otherwise the seeds of later resets would
  // shift by one.
  void keep_seed(std::uint32_t env) {
    add(progress_[env].counted_from, 1);
    add(progress_[env].seeded_at, 1);
  }
  // Counts a reset that does not begin an episode.
  void count_reset(std::uint32_t env) { add(progress_[env].resets, 1); }

 private:
  static std::uint64_t load(const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); }

  Progress* progress_;
};

}  // namespace remuda
