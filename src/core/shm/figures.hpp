// Counters of envs, workers and the pool's caller, for statistics. They lie in the arena, so another process may read
// them. They outlive a worker, and the worker's successor continues them.
//
// Each figure has one writer and any number of readers. Figures do not order other memory accesses. A worker writes its
// figures before it publishes the result that they count. A reader that has received a result therefore finds it
// counted ("publish", ring.hpp).
//
// Python reads the structs by their lists of fields: a new figure needs a member and an entry of `kFields`.
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

// A member of a struct, for Python: its name, its type (a NumPy type code, or the name of another struct), the number
// of consecutive elements, and its offset in bytes.
struct Field {
  const char* name;
  const char* type;
  std::uint32_t count;
  std::size_t offset;
};

inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
  // A plain load and store suffice, because each counter has one writer.
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

inline std::uint64_t load(const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); }

// A histogram of durations, with four buckets per octave, from 256 ns to more than half an hour. The first and the last
// bucket also count all shorter and longer durations.
struct Durations {
  // Both are exponents of two: buckets begin at 2^8 ns, with 2^2 per octave.
  static constexpr std::uint32_t kShortest = 8, kPerOctave = 2;
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
  // Returns the shortest duration of a bucket, in ns.
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

inline constexpr Field kFieldsOfDurations[] = {
    {"total_ns", "u8", 1, offsetof(Durations, total_ns)},
    {"longest_ns", "u8", 1, offsetof(Durations, longest_ns)},
    {"counts", "u8", Durations::kBuckets, offsetof(Durations, counts)},
};

// The figures of one env. For a vector env, only its first sub-env has the durations.
struct EnvFigures {
  // The number of recent episodes that are kept. A reader may see the oldest one while it is overwritten.
  static constexpr std::uint32_t kEpisodes = 16;
  struct Episode {
    std::atomic<double> reward;  // the sum of rewards, and of the numbers in each if they are vectors
    std::atomic<std::uint64_t> steps;
  };

  alignas(64) Durations steps;
  Durations resets;
  std::atomic<std::uint64_t> episodes;  // The number of episodes that the env terminated or truncated.
  std::atomic<std::uint64_t> faults;    // The number of faults. The pool writes it.
  std::uint64_t unused[6];
  Episode last[kEpisodes];  // episode n is at n % kEpisodes

  void note_episode(double reward, std::uint64_t steps_taken) {
    const std::uint64_t n = episodes.load(std::memory_order_relaxed);
    last[n % kEpisodes].reward.store(reward, std::memory_order_relaxed);
    last[n % kEpisodes].steps.store(steps_taken, std::memory_order_relaxed);
    episodes.store(n + 1, std::memory_order_release);
  }
};
static_assert(sizeof(EnvFigures) == 2496 && offsetof(EnvFigures, episodes) == 2176 &&
              offsetof(EnvFigures, last) == 2240);

inline constexpr Field kFieldsOfEpisode[] = {
    {"reward", "f8", 1, offsetof(EnvFigures::Episode, reward)},
    {"steps", "u8", 1, offsetof(EnvFigures::Episode, steps)},
};
inline constexpr Field kFieldsOfEnv[] = {
    {"steps", "Durations", 1, offsetof(EnvFigures, steps)},
    {"resets", "Durations", 1, offsetof(EnvFigures, resets)},
    {"episodes", "u8", 1, offsetof(EnvFigures, episodes)},
    {"faults", "u8", 1, offsetof(EnvFigures, faults)},
    {"last", "Episode", EnvFigures::kEpisodes, offsetof(EnvFigures, last)},
};

// The figures of one worker. Its `Meter` has more.
struct WorkerFigures {
  alignas(64) Durations idle;                  // The time between the end of a command and the arrival of the next.
  std::atomic<std::uint64_t> restarts;         // The number of restarts. The pool writes it.
  std::atomic<std::uint64_t> memory_renewals;  // The number of renewals due to the memory limit. The pool writes it.
  // The total time from a fault of the process until its successor serves. The pool writes it.
  std::atomic<std::uint64_t> outage_ns;
  std::atomic<std::uint64_t> rebuild_ns;  // The time spent rebuilding failed envs in this process.
  std::atomic<std::uint64_t> info_ns;     // The time spent pickling and sending the parts of infos without a column.
  std::atomic<std::uint64_t> info_bytes;  // The size of the largest pickled value in infos.
  // The key of this value in UTF-8, padded with zeros; a reader may see parts of two keys.
  std::atomic<std::uint64_t> info_key[8];
  // The time since which no process serves its envs, because its successor is being started; 0 otherwise. The pool
  // writes it.
  std::atomic<std::uint64_t> absent_since_ns;
  // The same after a fault, from the beginning of what failed. `outage_ns` does not have this time yet.
  std::atomic<std::uint64_t> outage_since_ns;

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

inline constexpr Field kFieldsOfWorker[] = {
    {"idle", "Durations", 1, offsetof(WorkerFigures, idle)},
    {"restarts", "u8", 1, offsetof(WorkerFigures, restarts)},
    {"memory_renewals", "u8", 1, offsetof(WorkerFigures, memory_renewals)},
    {"outage_ns", "u8", 1, offsetof(WorkerFigures, outage_ns)},
    {"rebuild_ns", "u8", 1, offsetof(WorkerFigures, rebuild_ns)},
    {"info_ns", "u8", 1, offsetof(WorkerFigures, info_ns)},
    {"info_bytes", "u8", 1, offsetof(WorkerFigures, info_bytes)},
    {"info_key", "S64", 1, offsetof(WorkerFigures, info_key)},
    {"absent_since_ns", "u8", 1, offsetof(WorkerFigures, absent_since_ns)},
    {"outage_since_ns", "u8", 1, offsetof(WorkerFigures, outage_since_ns)},
};

// The figures of the pool's caller, which the pool writes; see `CallerMeter`.
struct CallerFigures {
  alignas(64) std::atomic<std::uint64_t> began_ns;  // The time of the first command sent (CLOCK_MONOTONIC); 0 before.
  std::atomic<std::uint64_t> batches;               // The number of batches handed out.
  std::atomic<std::uint64_t> waited_ns;             // The time spent waiting for envs.
  std::atomic<std::uint64_t> sampled;               // The number of batches for which `gathering_ns` was measured.
  std::atomic<std::uint64_t> gathering_ns;          // The time that these sampled batches spent in the pool's own code.
  std::atomic<std::uint64_t> unpickling_ns;         // The time spent unpickling infos when the caller reads them.
  std::uint64_t unused[2];
};
static_assert(sizeof(CallerFigures) == 64);

inline constexpr Field kFieldsOfCaller[] = {
    {"began_ns", "u8", 1, offsetof(CallerFigures, began_ns)},
    {"batches", "u8", 1, offsetof(CallerFigures, batches)},
    {"waited_ns", "u8", 1, offsetof(CallerFigures, waited_ns)},
    {"sampled", "u8", 1, offsetof(CallerFigures, sampled)},
    {"gathering_ns", "u8", 1, offsetof(CallerFigures, gathering_ns)},
    {"unpickling_ns", "u8", 1, offsetof(CallerFigures, unpickling_ns)},
};

}  // namespace remuda
