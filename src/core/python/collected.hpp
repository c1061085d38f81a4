// Shows Python's garbage collector what a class of ours holds: it cannot see into C++ by itself, and cycles that lead
// through there would never be freed.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

// `nb::class_<T>(..., nb::type_slots(Collected<T>::slots))`, where `T` has `int visit(visitproc, void*) const`, which
// passes on whatever it holds, and `void clear()`, which lets go of it.
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
