// Calls several functions from C++ in one go, so that no signal handler can run in between.
//
// Python runs signal handlers, which may raise, between any two of its own instructions, but never within C++ code.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace remuda {

namespace nb = nanobind;

// Calls each of `functions`, even if earlier ones raised, then raises the first exception. If all functions are written
// in C, no signal handler runs in between.
inline void call_all(const nb::list& functions) {
  std::optional<nb::python_error> first;
  for (nb::handle function : functions) {
    try {
      function();
    } catch (nb::python_error& error) {
      if (!first) first.emplace(error);
    }
  }
  if (first) throw nb::python_error(*first);
}

}  // namespace remuda
