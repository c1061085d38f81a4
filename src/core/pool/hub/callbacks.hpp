// The Python functions of the pool that the hub calls, and the type of its batches. They may refer to the hub, so
// Python's garbage collector visits them.
#pragma once

#include <cstdint>

#include "python/numpy_api.hpp"

namespace remuda {

struct Callbacks {
  // Called before each wait if workers have no thread or process on this machine: runs the commands of workers in the
  // caller's thread, or passes them on to other machines. Null for other workers.
  nb::object pump;
  // For workers on other machines: waits for results of theirs, for so many seconds at most, or for all results if the
  // second argument is true. Then commands are passed on as soon as they are sent.
  nb::object await_results;
  nb::object look;            // called with each batch that has infos without a column, and with batch `look_at`
  std::uint64_t look_at = 0;  // the number of a batch, from 1
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
