// Interns strings: equal strings in programs' sources are one object, so dicts find such keys by identity at once.
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
