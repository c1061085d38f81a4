// NumPy's C API, imported once for the whole module (by module.cpp).
#pragma once

#include <nanobind/nanobind.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL remuda_numpy_api
#ifndef REMUDA_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

namespace nb = nanobind;

namespace remuda {

inline nb::object none_or(nb::object object) { return object.is_valid() ? object : nb::object(nb::none()); }

}  // namespace remuda
