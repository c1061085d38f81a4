// An array that the core has made and keeps, to hand it out again once no caller holds it.
//
// Making and freeing an array takes longer than filling a small one. Every holder of the array has a reference to it.
// Without a holder, only weak references lead to the array.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

// Returns the number of references. In every version of CPython it is in the low half of the object's first word; newer
// versions keep flags in the high half.
inline std::uint32_t references(nb::handle object) { return static_cast<std::uint32_t>(Py_REFCNT(object.ptr())); }

class MadeArray {
 public:
  MadeArray() = default;  // no array
  explicit MadeArray(nb::object array) : array_(std::move(array)), flags_(PyArray_FLAGS(get())) {}

  bool is_there() const { return array_.is_valid(); }
  const nb::object& object() const { return array_; }

  // `is_held`: whether there is another reference to the array. `is_weakly_referenced`: whether there is a weak
  // reference to it.
  bool is_held() const { return is_there() && references(array_) != 1; }
  bool is_weakly_referenced() const {
    return is_there() && reinterpret_cast<PyArrayObject_fields*>(array_.ptr())->weakreflist != nullptr;
  }
  // Whether the array has this dtype, the shape (rows, *shape), and its original flags. Any holder may have changed all
  // three.
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
