// Defines macros of CPython that its limited API provides only as functions.
//
// From Python 3.12 on one build of the module serves all versions (`wheel.py-api` in pyproject.toml). It calls
// functions, because the layouts that the macros depend on may change between versions.
#pragma once

#include <Python.h>

#ifdef Py_LIMITED_API
#define PyByteArray_AS_STRING PyByteArray_AsString
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#endif
