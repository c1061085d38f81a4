// Copies figures from an arena to Python: those of shm/figures.hpp, and the workers' meters.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/clock.hpp"
#include "shm/arena.hpp"
#include "shm/plan.hpp"

namespace remuda {

namespace nb = nanobind;

// Copies word by word, so that each word is whole even while a worker writes it.
inline void copy_words(const Arena& arena, std::uint64_t offset, std::uint64_t bytes, std::vector<std::uint64_t>& to) {
  const auto* words = arena.at<const std::atomic<std::uint64_t>>(offset);
  for (std::uint64_t i = 0; i < bytes / sizeof *words; ++i) to.push_back(words[i].load(std::memory_order_relaxed));
}

inline nb::bytes as_bytes(const std::vector<std::uint64_t>& words) {
  return nb::bytes(words.data(), words.size() * sizeof(std::uint64_t));
}

// Returns the shortest duration of each bucket of `Durations`, and the end of the last bucket, in ns.
inline std::vector<std::uint64_t> duration_edges() {
  std::vector<std::uint64_t> edges;
  for (std::uint32_t bucket = 0; bucket <= Durations::kBuckets; ++bucket) edges.push_back(Durations::first_of(bucket));
  return edges;
}

// Returns the structs of figures by name: {name: ([(field, type, count, offset)], size in bytes)}. A type is a NumPy
// type code, or the name of an earlier struct.
inline nb::dict figure_structs() {
  nb::dict structs;
  const auto add = [&structs](const char* name, std::span<const Field> fields, std::size_t bytes) {
    nb::list list;
    for (const Field& field : fields) list.append(nb::make_tuple(field.name, field.type, field.count, field.offset));
    structs[name] = nb::make_tuple(list, bytes);
  };
  add("Durations", kFieldsOfDurations, sizeof(Durations));
  add("Episode", kFieldsOfEpisode, sizeof(EnvFigures::Episode));
  add("Env", kFieldsOfEnv, sizeof(EnvFigures));
  add("Worker", kFieldsOfWorker, sizeof(WorkerFigures));
  add("Meter", kFieldsOfMeter, sizeof(Meter));
  add("Caller", kFieldsOfCaller, sizeof(CallerFigures));
  return structs;
}

// Returns (figures of all envs, figures of all workers, meters of all workers, figures of the caller, time). Each of
// the first four is the bytes of its structs, one after another. The time is in ns of CLOCK_MONOTONIC.
inline nb::tuple read_figures(const Arena& arena, const Plan& plan) {
  std::vector<std::uint64_t> envs, workers, meters, caller;
  copy_words(arena, plan.env_figures, sizeof(EnvFigures) * plan.envs, envs);
  copy_words(arena, plan.worker_figures, sizeof(WorkerFigures) * plan.workers, workers);
  for (std::uint32_t w = 0; w < plan.workers; ++w) copy_words(arena, plan.meter(w), sizeof(Meter), meters);
  copy_words(arena, plan.caller_figures, sizeof(CallerFigures), caller);
  return nb::make_tuple(as_bytes(envs), as_bytes(workers), as_bytes(meters), as_bytes(caller), now_ns());
}

}  // namespace remuda
