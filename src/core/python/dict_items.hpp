// Reads dicts of user code, which another thread may change meanwhile, and interns their keys.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

// Interns a string: equal strings in programs' sources are one object, so dicts find such keys by identity at once.
inline nb::object interned(nb::handle text) {
  PyObject* one = text.inc_ref().ptr();
  PyUnicode_InternInPlace(&one);
  return nb::steal(one);
}

// Returns the value of a key, or null if the dict lacks the key.
inline nb::object item(nb::handle dict, nb::handle key) {
  const nb::ft_object_guard guard(dict);
  PyObject* value = PyDict_GetItemWithError(dict.ptr(), key.ptr());
  if (value == nullptr && PyErr_Occurred()) nb::raise_python_error();
  return nb::borrow(value);
}

// Calls `visit(key, value)` for the items of a dict until it returns false. Returns whether it has returned true for
// all of them. The key and the value exist until the call returns, even if the dict changes.
template <class Visit>
bool visit_items(nb::handle dict, Visit visit) {
  const nb::ft_object_guard guard(dict);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.ptr(), &position, &key, &value)) {
    const nb::object held_key = nb::borrow(key), held_value = nb::borrow(value);
    if (!visit(key, value)) return false;
  }
  return true;
}

}  // namespace remuda
