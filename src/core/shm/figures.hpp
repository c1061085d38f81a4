// What is counted of envs, workers and the pool's caller, for statistics: it lies in the arena, so that another process
// may read it, and outlives a worker, whose successor goes on counting.
//
// Each figure has one writer, and anybody may read it at any time; nothing is ordered by it. A worker writes its
// figures before it publishes the result that they are of, so whoever has the result finds it counted ("publish",
// ring.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace remuda {

inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);  // one writer
}

// How long something took, how often: counts by length, in buckets of which four are an octave, from 256 ns to more
// than half an hour. What is shorter or longer is in the first or the last.
struct Durations {
  static constexpr std::uint32_t kShortest = 8, kPerOctave = 2;  // as powers of two, of nanoseconds and of buckets
  static constexpr std::uint32_t kBuckets = 134;

  std::atomic<std::uint64_t> total_ns;
  std::atomic<std::uint64_t> longest_ns;
  std::atomic<std::uint64_t> counts[kBuckets];

  static std::uint32_t bucket_of(std::uint64_t ns) {
    if (ns < (1ULL << kShortest)) return 0;
    const auto octave = static_cast<std::uint32_t>(std::bit_width(ns)) - 1;
    const auto within = static_cast<std::uint32_t>(ns >> (octave - kPerOctave)) & ((1U << kPerOctave) - 1);
    return std::min(1 + ((octave - kShortest) << kPerOctave) + within, kBuckets - 1);
  }
  // The shortest of a bucket.
  static std::uint64_t first_of(std::uint32_t bucket) {
    if (bucket == 0) return 0;
    const std::uint32_t octave = kShortest + ((bucket - 1) >> kPerOctave);
    const std::uint64_t within = (bucket - 1) & ((1U << kPerOctave) - 1);
    return ((1ULL << kPerOctave) + within) << (octave - kPerOctave);
  }

  void note(std::uint64_t ns) {
    remuda::add(total_ns, ns);
    remuda::add(counts[bucket_of(ns)], 1);
    if (ns > longest_ns.load(std::memory_order_relaxed)) longest_ns.store(ns, std::memory_order_relaxed);
  }
};
static_assert(sizeof(Durations) == 1088 && sizeof(Durations) % 64 == 0);

// Of one env; where that is a vector env, the durations are with the first of its numbers.
struct EnvFigures {
  static constexpr std::uint32_t kEpisodes = 16;  // that are remembered; the oldest may be overwritten meanwhile
  struct Episode {
    std::atomic<double> reward;  // the sum
    std::atomic<std::uint64_t> steps;
  };

  alignas(64) Durations steps;
  Durations resets;
  std::atomic<std::uint64_t> episodes;  // that it has ended itself
  std::atomic<std::uint64_t> faults;    // the pool's
  std::uint64_t unused[6];
  Episode last[kEpisodes];  // episode n at n % kEpisodes

  void note_episode(double reward, std::uint64_t steps_taken) {
    const std::uint64_t n = episodes.load(std::memory_order_relaxed);
    last[n % kEpisodes].reward.store(reward, std::memory_order_relaxed);
    last[n % kEpisodes].steps.store(steps_taken, std::memory_order_relaxed);
    episodes.store(n + 1, std::memory_order_release);
  }
};
static_assert(sizeof(EnvFigures) == 2496 && offsetof(EnvFigures, episodes) == 2176 &&
              offsetof(EnvFigures, last) == 2240);

// Of one worker, beside its `Meter`.
struct WorkerFigures {
  alignas(64) Durations idle;                  // from the end of what it did until there is something to do
  std::atomic<std::uint64_t> restarts;         // the pool's
  std::atomic<std::uint64_t> memory_renewals;  // the pool's, too
  std::atomic<std::uint64_t> outage_ns;    // the pool's, too: from what a process failed in until its successor serves
  std::atomic<std::uint64_t> rebuild_ns;   // in which envs that had failed were built again in this process
  std::atomic<std::uint64_t> info_ns;      // in which what infos have beside columns was pickled and sent
  std::atomic<std::uint64_t> info_bytes;   // of the largest pickled value
  std::atomic<std::uint64_t> info_key[8];  // its key in UTF-8, zeros behind it; a reader may see parts of two
  std::uint64_t unused[2];

  void name_info(std::string_view key, std::uint64_t bytes) {
    char text[sizeof info_key] = {};
    std::memcpy(text, key.data(), std::min(key.size(), sizeof text - 1));
    for (std::size_t i = 0; i < std::size(info_key); ++i) {
      std::uint64_t word;
      std::memcpy(&word, text + i * sizeof word, sizeof word);
      info_key[i].store(word, std::memory_order_relaxed);
    }
    info_bytes.store(bytes, std::memory_order_relaxed);
  }
};
static_assert(sizeof(WorkerFigures) == 1216 && offsetof(WorkerFigures, restarts) == 1088);

// Of the pool's caller, by the pool; see `CallerMeter`.
struct CallerFigures {
  alignas(64) std::atomic<std::uint64_t> began_ns;  // CLOCK_MONOTONIC: when it was first sent anything; 0: not yet
  std::atomic<std::uint64_t> batches;               // handed out
  std::atomic<std::uint64_t> waited_ns;             // for envs
  std::atomic<std::uint64_t> sampled;               // batches whose gathering was timed
  std::atomic<std::uint64_t> gathering_ns;          // of those: in the pool's own code
  std::atomic<std::uint64_t> unpickling_ns;         // of infos, when the caller looked at them
  std::uint64_t unused[2];
};
static_assert(sizeof(CallerFigures) == 64);

}  // namespace remuda
