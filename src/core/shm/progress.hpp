// The episodes, steps and seeds of an env, in the arena. Its worker writes them, and they outlive the worker: the pool
// reads them for a death report, and the worker's successor continues the counts.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/figures.hpp"

namespace remuda {

struct Progress {
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> steps;    // The number of steps begun since the last reset.
  std::atomic<std::uint64_t> results;  // The number of rows filled.
  // The next three counts describe the env's seeds. `seed_base` is the number of the caller's seed from which they are
  // derived (`SeedBase.number` in Python). `seeded_at` is the number of the latest reset with a seed. `counted_from` is
  // the number of the reset at which the count of seeds began. The latest seeded reset thus used the seed number
  // seeded_at - counted_from.
  std::atomic<std::uint64_t> seed_base;
  std::atomic<std::uint64_t> seeded_at;
  std::atomic<std::uint64_t> counted_from;
  // 1 if the env's last result ended the episode and the worker has not reported the next episode yet, else 0.
  std::atomic<std::uint64_t> needs_reset;
  // 1 if a shard on another machine has rebuilt the env, and the env has not reset since. Always 0 on one machine.
  std::atomic<std::uint64_t> is_fresh_on_shard;

  void begin_episode() {
    add(resets, 1);
    steps.store(0, std::memory_order_relaxed);
  }

  // Returns the number, from 0, of the seed for the current reset, among the seeds derived from `base`. `in_each`:
  // whether each reset has such a seed, or only some. Returns 0 if the env had another base so far.
  std::uint64_t next_seed(std::uint64_t base, bool in_each) const {
    if (load(seed_base) != base) return 0;
    return (in_each ? load(resets) : load(seeded_at) + 1) - load(counted_from);
  }
  // Records that the current reset uses the n-th seed of `base`.
  void note_seed(std::uint64_t base, std::uint64_t n) { set_seeds({base, load(resets), load(resets) - n}); }

  // The counts that a command changes, to undo a command that was interrupted. `results` is not one of them: the pool
  // knows how many results it has received.
  struct Counts {
    std::uint64_t resets = 0, steps = 0, seed_base = 0, seeded_at = 0, counted_from = 0, needs_reset = 0;
  };
  Counts counts() const {
    return {load(resets), load(steps), load(seed_base), load(seeded_at), load(counted_from), load(needs_reset)};
  }
  void restore(const Counts& counts) {
    resets.store(counts.resets, std::memory_order_relaxed);
    steps.store(counts.steps, std::memory_order_relaxed);
    needs_reset.store(counts.needs_reset, std::memory_order_relaxed);
    set_seeds({counts.seed_base, counts.seeded_at, counts.counted_from});
  }

  // The seed counts of an env, to restore them later with `give_back`.
  struct Seeds {
    std::uint64_t base = 0, seeded_at = 0, counted_from = 0;
    bool operator==(const Seeds&) const = default;
  };
  Seeds seeds() const { return {load(seed_base), load(seeded_at), load(counted_from)}; }
  // Undoes the effect of the latest reset, which was discarded, on the seed counts. `before`: the counts before that
  // reset. The next reset gets the seed that the discarded reset used.
  void give_back(const Seeds& before) {
    set_seeds(before);
    keep_seed();
  }
  // Adjusts the seed counts after a reset that was counted but takes no seed. Otherwise the seeds of later resets would
  // shift by one.
  void keep_seed() {
    add(counted_from, 1);
    add(seeded_at, 1);
  }

 private:
  void set_seeds(const Seeds& seeds) {
    counted_from.store(seeds.counted_from, std::memory_order_relaxed);
    seeded_at.store(seeds.seeded_at, std::memory_order_relaxed);
    // The base is stored last. If the worker dies before, the env still has its old base, and no reset counts as seeded
    // from the new one.
    seed_base.store(seeds.base, std::memory_order_release);
  }
};
static_assert(sizeof(Progress) == 64);

}  // namespace remuda
