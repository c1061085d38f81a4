// How far each env has come, and which of its seeds is next: counted where the pool can see it, and a successor of ours
// goes on. See `Progress`.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/figures.hpp"
#include "shm/plan.hpp"

namespace remuda {

class EnvCounts {
 public:
  explicit EnvCounts(Progress* progress) : progress_(progress) {}  // by env

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
  // After the row was kept.
  void set_results(std::uint32_t env, std::uint64_t results) {
    progress_[env].results.store(results, std::memory_order_release);
  }

  // -- seeds -------------------------------------------------------------------------------------------------

  // The number, from 0, of the seed that the reset under way is to be given, of those derived from that base, where
  // each episode has one; 0 where the env had another base until now.
  std::uint64_t seed_of_episode(std::uint32_t env, std::uint64_t base) const {
    const Progress& its = progress_[env];
    return load(its.seed_base) == base ? load(its.resets) - load(its.counted_from) : 0;
  }
  // The same where few have one.
  std::uint64_t next_seed(std::uint32_t env, std::uint64_t base) const {
    const Progress& its = progress_[env];
    return load(its.seed_base) == base ? load(its.seeded_at) - load(its.counted_from) + 1 : 0;
  }
  // It is given the n-th.
  void note_seed(std::uint32_t env, std::uint64_t base, std::uint64_t n) {
    Progress& its = progress_[env];
    const std::uint64_t resets = load(its.resets);
    its.counted_from.store(resets - n, std::memory_order_relaxed);
    its.seeded_at.store(resets, std::memory_order_relaxed);
    its.seed_base.store(base, std::memory_order_release);  // last: whoever dies in between has not begun to count
  }
  // What is kept of an env's seeds.
  struct Seeds {
    std::uint64_t base = 0, seeded_at = 0, counted_from = 0;
    bool operator==(const Seeds&) const = default;
  };
  Seeds seeds(std::uint32_t env) const {
    const Progress& its = progress_[env];
    return {load(its.seed_base), load(its.seeded_at), load(its.counted_from)};
  }
  // The latest reset, which was counted, is nobody's: seeds are as they were before it, and the next reset has the one
  // that it was given, if it was given any.
  void give_back(std::uint32_t env, const Seeds& before) {
    Progress& its = progress_[env];
    its.counted_from.store(before.counted_from, std::memory_order_relaxed);
    its.seeded_at.store(before.seeded_at, std::memory_order_relaxed);
    its.seed_base.store(before.base, std::memory_order_release);
    keep_seed(env);
  }
  // A reset that was counted takes no seed from those that follow.
  void keep_seed(std::uint32_t env) {
    add(progress_[env].counted_from, 1);
    add(progress_[env].seeded_at, 1);
  }
  // A reset that is no episode's beginning is counted.
  void count_reset(std::uint32_t env) { add(progress_[env].resets, 1); }

 private:
  static std::uint64_t load(const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); }

  Progress* progress_;
};

}  // namespace remuda
