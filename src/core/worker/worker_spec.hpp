// What a worker is told of itself when it starts, beside the plan of the arena.
#pragma once

#include <cstdint>

#include "ipc/protocol.hpp"

namespace remuda {

struct WorkerSpec {
  std::uint32_t index;      // of this worker
  std::uint32_t first_env;  // it hosts the envs first_env, first_env + 1, ...
  bool is_vector;           // its envs are vector envs, be they of one each
  Autoreset autoreset;
  bool resets_ahead;  // an env is reset when its episode ends, unless something else is to be done, before it is asked
  std::int64_t spin_ns;
  bool spins_heedlessly;
  std::uint64_t publish_ns;   // results of steps that take less are made visible together, others at once
  std::uint32_t renew_every;  // episodes after which an env is to be made anew; 0: never
  bool watches_memory;        // of its process: one that has grown too large is to be replaced
  bool renews_in_place;       // by the hooks; else the result says that it is due, and the pool sees to it
  bool has_successors;        // a process that could not make an env anew is replaced; others try again
};

}  // namespace remuda
