// An array that we have made, and keep, to hand it out again when nobody else holds it any more.
//
// Making an array and freeing it takes longer than filling a small one.  Each holder has a reference, and who has none
// has no way to the array, with one exception: a weak reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

// The low half is the count in every version of CPython; newer ones keep flags in the other.
inline std::uint32_t references(nb::handle object) { return static_cast<std::uint32_t>(Py_REFCNT(object.ptr())); }

class MadeArray {
 public:
  MadeArray() = default;  // none
  explicit MadeArray(nb::object array) : array_(std::move(array)), flags_(PyArray_FLAGS(get())) {}

  bool is_there() const { return array_.is_valid(); }
  const nb::object& object() const { return array_; }

  // Whether anybody but us has a reference to it, and whether anybody has a weak one.
  bool is_held() const { return is_there() && references(array_) != 1; }
  bool is_weakly_referenced() const {
    return is_there() && reinterpret_cast<PyArrayObject_fields*>(array_.ptr())->weakreflist != nullptr;
  }
  // Whether it is an array (rows, *shape) of this dtype, and has the flags that it was made with: whoever holds an
  // array may change these.
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
