// The type of the pool's batches, and the Python functions of the pool that the hub calls. They may refer to the hub,
// so Python's garbage collector visits them.
#pragma once

#include <cstdint>

#include "python/numpy_api.hpp"

namespace remuda {

struct Callbacks {
  // Called before each wait, if the workers have no thread or process on this machine. It runs the workers' commands in
  // the caller's thread, or passes them on to other machines. Null if the workers have a thread or process here.
  nb::object pump;
  // Called with (seconds, all) to wait for the results of workers on other machines: for at most these seconds, and for
  // all results if `all` is true. Null for other workers. If it is set, commands are passed on as soon as they are
  // sent.
  nb::object await_results;
  nb::object look;            // Called with each batch with infos that could get a column, and with batch `look_at`.
  std::uint64_t look_at = 0;  // The number of a batch, counted from 1.
  nb::object batch_type;

  int visit(visitproc visit, void* arg) const {
    for (const nb::object* one : {&pump, &await_results, &look, &batch_type}) Py_VISIT(one->ptr());
    return 0;
  }
  void clear() {
    for (nb::object* one : {&pump, &await_results, &look, &batch_type}) one->reset();
  }
};

}  // namespace remuda
