// The settings that a worker receives when it starts, in addition to the plan of the arena.
#pragma once

#include <cstdint>

#include "ipc/protocol.hpp"

namespace remuda {

struct WorkerSpec {
  std::uint32_t index;  // The number of this worker.
  // The number of the worker's first env. Its other envs have the following numbers.
  std::uint32_t first_env;
  bool is_vector;  // Whether the worker's envs are vector envs, possibly with one sub-env each.
  Autoreset autoreset;
  // Whether the worker resets an env in advance after its episode ends, if no command is pending.
  bool resets_ahead;
  std::int64_t spin_ns;
  bool spins_heedlessly;
  // The result of a step of at least this duration is published at once. The results of shorter steps are published
  // together.
  std::uint64_t publish_ns;
  std::uint32_t renew_every;  // The number of episodes after which an env is renewed; 0: never.
  // Whether the worker's process is replaced once it exceeds its memory limit.
  bool watches_memory;
  // Whether the hooks renew an env in the same process. Otherwise the result reports that renewal is due, and the pool
  // replaces the worker.
  bool renews_in_place;
  // Whether the pool replaces the process after it failed to create an env. Otherwise the process tries again.
  bool has_successors;
};

}  // namespace remuda
