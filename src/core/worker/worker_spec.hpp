// The settings that a worker receives when it starts, beside the plan of the arena.
#pragma once

#include <cstdint>

#include "ipc/protocol.hpp"

namespace remuda {

struct WorkerSpec {
  std::uint32_t index;      // the index of this worker
  std::uint32_t first_env;  // it hosts the envs first_env, first_env + 1, ...
  bool is_vector;           // its envs are vector envs, possibly with one sub-env each
  Autoreset autoreset;
  // Whether an env is reset in advance after its episode ends, if no other command is pending.
  bool resets_ahead;
  std::int64_t spin_ns;
  bool spins_heedlessly;
  // The results of faster steps are published together, others at once.
  std::uint64_t publish_ns;
  std::uint32_t renew_every;  // renew an env after this many episodes; 0: never
  bool watches_memory;        // whether the process is replaced once it exceeds its memory limit
  // Whether the hooks renew an env in place. Otherwise the result reports that renewal is due, and the pool replaces
  // the worker.
  bool renews_in_place;
  // Whether a process that failed to create an env is replaced. Otherwise it tries again.
  bool has_successors;
};

}  // namespace remuda
