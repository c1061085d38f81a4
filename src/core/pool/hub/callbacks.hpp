// The Python functions of the pool that the hub calls, and the type of its batches. They may refer to the hub, so
// Python's garbage collector visits them.
#pragma once

#include <cstdint>

#include "python/numpy_api.hpp"

namespace remuda {

struct Callbacks {
  nb::object pump;            // called before each wait if workers run in the caller's thread; else null
  nb::object look;            // called with each batch that has infos without a column, and with batch `look_at`
  std::uint64_t look_at = 0;  // the number of a batch, from 1
  nb::object batch_type;

  int visit(visitproc visit, void* arg) const {
    for (const nb::object* one : {&pump, &look, &batch_type}) Py_VISIT(one->ptr());
    return 0;
  }
  void clear() {
    for (nb::object* one : {&pump, &look, &batch_type}) one->reset();
  }
};

}  // namespace remuda
