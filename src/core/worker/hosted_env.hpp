// One env of a worker, and the state that the worker keeps for it between commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "python/numpy_api.hpp"
#include "shm/progress.hpp"

namespace remuda {

struct HostedEnv {
  std::uint32_t index;  // the env's number in the pool
  Progress& progress;
  EnvFigures& figures;
  nb::object env;
  nb::object last_obs = {};  // The answer to kObserve. It may be a buffer that the env reuses.
  // A copy of the last observation that the worker owns. It is current if `last_obs` is the same object.
  nb::object own_obs = {};
  std::vector<std::byte> last_computed = {};   // The values of the computed columns for kObserve.
  bool terminated = false, truncated = false;  // The flags of the last step; valid only while a reset is needed.
  bool is_missing = false;                     // The old env was closed, and creating a new one has failed.
  bool is_unbuilt = false;                     // The env does not exist yet; the first reset creates it.
  std::uint32_t episodes = 0;                  // The number of requested resets since the env was created.
  std::uint64_t results = 0;                   // The number of rows filled for this env, also by previous workers.
  bool is_due = false;                         // The env is due for a reset in advance.
  nb::object ahead = {};                       // The result of a reset in advance, until it is requested.
  nb::object ahead_error = {};                 // Its exception, which the reset that is requested next raises.
  Progress::Seeds seeds_before_ahead = {};
  nb::object not_resumed = {};  // Why the episode could not be played again: an exception. The env must be rebuilt.
  double reward = 0.0;          // The sum of rewards in the current episode.
  // Whether the env was reset, or put into a state, since it was created. For a vector env, only the first sub-env has
  // this.
  bool has_begun = false;
  std::uint64_t reset_begin_ns = 0;  // The next two are the times of the latest reset.
  std::uint64_t reset_end_ns = 0;

  // Whether the episode is over, and the env must reset before it steps. The pool reads this, too.
  bool needs_reset() const { return load(progress.needs_reset) != 0; }
  void set_needs_reset(bool needs) { progress.needs_reset.store(needs, std::memory_order_relaxed); }

  bool has_reset_ahead() const { return ahead.is_valid() || ahead_error.is_valid(); }
  void forget_reset_ahead() {
    ahead = nb::object();
    ahead_error = nb::object();
  }
};

}  // namespace remuda
