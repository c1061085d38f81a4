// One env of a worker, and the state that the worker keeps for it between commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "python/numpy_api.hpp"
#include "worker/env_counts.hpp"

namespace remuda {

struct HostedEnv {
  std::uint32_t index;  // index in the pool
  nb::object env;
  nb::object last_obs = {};                    // for kObserve; may be a buffer of the env, see `own_obs`
  nb::object own_obs = {};                     // a copy that the worker owns; current while `last_obs` is this object
  std::vector<std::byte> last_computed = {};   // the values of the computed columns, for kObserve
  bool terminated = false, truncated = false;  // of the last step; valid only while a reset is needed
  bool needs_reset = false;                    // the episode ended, and next_step autoreset is due
  bool is_missing = false;                     // the previous env is closed, and creating another one has failed
  bool is_unbuilt = false;                     // the first reset creates the env
  std::uint32_t episodes = 0;                  // episodes begun since it was created, by requested resets
  std::uint64_t results = 0;                   // rows filled, including by previous workers
  bool is_due = false;                         // due for a reset in advance
  nb::object ahead = {};                       // the result of that reset, until it is requested
  std::optional<nb::python_error> ahead_error = {};  // the exception of that reset
  EnvCounts::Seeds seeds_before_ahead = {};
  double reward = 0.0;  // sum of rewards in this episode
  // Whether it was reset or put into a state since it was created. For a vector env, only the first sub-env has this.
  bool has_begun = false;
  std::uint64_t reset_begin_ns = 0;  // start and end of the latest reset
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
