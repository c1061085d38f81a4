// An array that the core has made and keeps, to hand it out again once no other holder is left.
//
// Making and freeing an array takes longer than filling a small one. Every holder has a reference, and there is no way
// to the array without one, with one exception: a weak reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

// The low half is the count in every version of CPython; newer versions keep flags in the other half.
inline std::uint32_t references(nb::handle object) { return static_cast<std::uint32_t>(Py_REFCNT(object.ptr())); }

class MadeArray {
 public:
  MadeArray() = default;  // no array
  explicit MadeArray(nb::object array) : array_(std::move(array)), flags_(PyArray_FLAGS(get())) {}

  bool is_there() const { return array_.is_valid(); }
  const nb::object& object() const { return array_; }

  // Whether there is another reference to the array, and whether there is a weak one.
  bool is_held() const { return is_there() && references(array_) != 1; }
  bool is_weakly_referenced() const {
    return is_there() && reinterpret_cast<PyArrayObject_fields*>(array_.ptr())->weakreflist != nullptr;
  }
  // Whether it is an array (rows, *shape) of this dtype, with its original flags, which any holder of the array may
  // change.
  bool is(const PyArray_Descr* dtype, npy_intp rows, int axes, const npy_intp* shape) const {
    return is_there() && PyArray_DESCR(get()) == dtype && PyArray_FLAGS(get()) == flags_ &&
           PyArray_NDIM(get()) == axes + 1 && PyArray_DIM(get(), 0) == rows &&
           std::equal(shape, shape + axes, PyArray_DIMS(get()) + 1);
  }
  const void* data() const { return PyArray_DATA(get()); }

 private:
  PyArrayObject* get() const { return reinterpret_cast<PyArrayObject*>(array_.ptr()); }

  nb::object array_;
  int flags_ = 0;
};

}  // namespace remuda
