// One env of a worker, and what the worker knows of it from one command to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "python/numpy_api.hpp"
#include "worker/env_counts.hpp"

namespace remuda {

struct HostedEnv {
  std::uint32_t index;  // in the pool
  nb::object env;
  nb::object last_obs = {};                          // for kObserve; may be a buffer of the env's, see `own_obs`
  nb::object own_obs = {};                           // a copy of ours; current while it is `last_obs` itself
  std::vector<std::byte> last_computed = {};         // of the computed columns, for the same
  bool terminated = false, truncated = false;        // by the last step; mean something while a reset is needed
  bool needs_reset = false;                          // the episode ended, and next_step autoreset is due
  bool is_missing = false;                           // the one before is closed, and another could not be made yet
  bool is_unbuilt = false;                           // its first reset makes it
  std::uint32_t episodes = 0;                        // begun since it was made, by resets that were asked for
  std::uint64_t results = 0;                         // rows filled, its predecessors' counted
  bool is_due = false;                               // to be reset ahead
  nb::object ahead = {};                             // what that reset returned, until it is asked for
  std::optional<nb::python_error> ahead_error = {};  // ... or raised
  EnvCounts::Seeds seeds_before_ahead = {};
  double reward = 0.0;     // of the episode so far
  bool has_begun = false;  // was reset, or put into a state, since it was made; of a vector env's first sub-env
  std::uint64_t reset_begin_ns = 0;  // of its latest reset
  std::uint64_t reset_end_ns = 0;

  bool has_reset_ahead() const { return ahead.is_valid() || ahead_error; }
  void forget_reset_ahead() {
    ahead = nb::object();
    ahead_error.reset();
  }

  // For Python's garbage collector.
  int visit(visitproc visit, void* arg) const {
    for (const nb::object* one : {&env, &last_obs, &own_obs, &ahead}) Py_VISIT(one->ptr());
    if (ahead_error) Py_VISIT(ahead_error->value().ptr());
    return 0;
  }
  void clear() {
    forget_reset_ahead();
    for (nb::object* one : {&env, &last_obs, &own_obs}) *one = nb::object();
  }
};

}  // namespace remuda
