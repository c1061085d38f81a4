// Reads dicts of user code, which another thread may change meanwhile.
#pragma once

#include <nanobind/nanobind.h>

namespace remuda {

namespace nb = nanobind;

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
