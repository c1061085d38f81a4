// Strings as the interpreter keeps those in programs' texts, one object for all that are equal: dicts find such keys at
// the first look.
#pragma once

#include <nanobind/nanobind.h>

namespace remuda {

namespace nb = nanobind;

inline nb::object interned(nb::handle text) {
  PyObject* one = text.inc_ref().ptr();
  PyUnicode_InternInPlace(&one);
  return nb::steal(one);
}

}  // namespace remuda
