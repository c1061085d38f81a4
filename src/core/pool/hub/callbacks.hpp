// What the hub calls in Python, and the type of the batches that it makes there.  They may hold the hub: Python's
// garbage collector asks for them.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

struct Callbacks {
  nb::object pump;  // before each wait, where workers run in the caller's thread; null: they do not
  nb::object look;  // at batches that Python has to know of
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
