// Shows Python's garbage collector the references that a C++ class holds. Without this, reference cycles through such
// an object would never be freed.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

// Use it as `nb::class_<T>(..., nb::type_slots(Collected<T>::slots))`. `T` must have two functions: `int
// visit(visitproc, void*) const` visits all references that the object holds, and `void clear()` drops them.
template <class T>
struct Collected {
  static int visit(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->visit(visit, arg) : 0;
  }

  static int clear(PyObject* self) {
    if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->clear();
    return 0;
  }

  static inline PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(visit)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};
};

}  // namespace remuda
