// Shows Python's garbage collector the references that a C++ class holds. Without this, reference cycles through such
// an object would never be freed.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

// An object that drops a reference first forgets it, because dropping may run user code and so the collector: assign
// `nb::object()`, do not call `reset()`.
//
// Use it as `nb::class_<T>(..., nb::type_slots(Collected<T>::slots))`. `T` must have a function `each_reference(act)`,
// which calls `act` with each `nb::object` that the object holds and that may refer back to it.
template <class T>
struct Collected {
  static int visit(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    int found = 0;
    if (nb::inst_ready(self))
      nb::inst_ptr<T>(self)->each_reference([&](const nb::object& one) {
        if (found == 0 && one.is_valid()) found = visit(one.ptr(), arg);
      });
    return found;
  }

  static int clear(PyObject* self) {
    if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->each_reference([](nb::object& one) { one = nb::object(); });
    return 0;
  }

  static inline PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(visit)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};
};

}  // namespace remuda
