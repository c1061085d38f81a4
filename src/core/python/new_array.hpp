// Creates NumPy arrays in C order.
#pragma once

#include <algorithm>

#include "python/numpy_api.hpp"

namespace remuda {

// Creates an array over `data`, which must outlive it. If `data` is null, the array has uninitialised memory of its
// own.
inline nb::object new_array(PyArray_Descr* dtype, int axes, const npy_intp* shape, void* data = nullptr) {
  Py_INCREF(reinterpret_cast<PyObject*>(dtype));  // PyArray_NewFromDescr steals a reference
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, dtype, axes, shape, nullptr, data,
                                         data == nullptr ? 0 : NPY_ARRAY_CARRAY, nullptr);
  if (array == nullptr) nb::raise_python_error();
  return nb::steal(array);
}

// Creates an array of `rows` rows of this shape.
inline nb::object new_rows(PyArray_Descr* dtype, npy_intp rows, int axes, const npy_intp* shape, void* data = nullptr) {
  npy_intp whole[NPY_MAXDIMS + 1];
  whole[0] = rows;
  std::copy(shape, shape + axes, whole + 1);
  return new_array(dtype, axes + 1, whole, data);
}

}  // namespace remuda
