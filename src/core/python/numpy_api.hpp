// CPython's API, through nanobind, and NumPy's, which module.cpp imports once for the whole module.
#pragma once

#include <nanobind/nanobind.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL remuda_numpy_api
#ifndef REMUDA_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

// From Python 3.12 on one build of the module serves all versions (`wheel.py-api` in pyproject.toml). The limited API
// has functions in place of these macros, because the layouts that the macros depend on may change between versions.
#ifdef Py_LIMITED_API
#define PyByteArray_AS_STRING PyByteArray_AsString
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#endif

namespace nb = nanobind;

namespace remuda {

inline nb::object none_or(nb::object object) { return object.is_valid() ? object : nb::object(nb::none()); }

}  // namespace remuda
