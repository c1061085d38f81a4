// Defines the macros of CPython that its limited API provides only as functions.
//
// From Python 3.12 on one build serves all versions (`wheel.py-api` in pyproject.toml). It must not depend on layouts
// that may change between versions, and calls functions instead.
#pragma once

#include <Python.h>

#ifdef Py_LIMITED_API
#define PyByteArray_AS_STRING PyByteArray_AsString
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_GET_SIZE PyTuple_Size
#endif
