// The macros of CPython that its limited API has as functions alone.
//
// From Python 3.12 on one build serves all versions (`wheel.py-api` in pyproject.toml): it may use nothing whose layout
// they do not promise to keep, and calls a function instead.
#pragma once

#include <Python.h>

#ifdef Py_LIMITED_API
#define PyByteArray_AS_STRING PyByteArray_AsString
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#endif
