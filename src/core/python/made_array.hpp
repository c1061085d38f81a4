// An array that the core has made and keeps, to hand it out again once no caller holds it.
//
// Making and freeing an array takes longer than filling a small one. Every holder of the array has a reference to it.
// Without a holder, only weak references lead to the array.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

// Returns the number of references to an object, or nullopt if this thread cannot count them.
//
// Without the GIL an object has two counts. The thread that made the object counts its own references in the first; all
// other threads use the second. Only that thread can trust the first, and only while the second is 0.
inline std::optional<std::uint32_t> references(nb::handle object) {
#ifdef Py_GIL_DISABLED
  PyObject* one = object.ptr();
  if (!_Py_IsOwnedByCurrentThread(one) || _Py_atomic_load_ssize_relaxed(&one->ob_ref_shared) != 0) return std::nullopt;
  // Pairs with the release of a thread that has dropped its last reference: its accesses to the object come first.
  std::atomic_thread_fence(std::memory_order_acquire);
  return _Py_atomic_load_uint32_relaxed(&one->ob_ref_local);
#else
  // In every version of CPython the low half of the object's first word has the number. Newer ones have flags above it.
  return static_cast<std::uint32_t>(Py_REFCNT(object.ptr()));
#endif
}

class MadeArray {
 public:
  MadeArray() = default;  // no array
  explicit MadeArray(nb::object array) : array_(std::move(array)), flags_(PyArray_FLAGS(get())) {}

  bool is_there() const { return array_.is_valid(); }
  const nb::object& object() const { return array_; }

  // `is_held`: whether there is another reference to the array, or nullopt if this thread cannot count them.
  // `is_weakly_referenced`: whether there is a weak reference to it.
  std::optional<bool> is_held() const {
    if (!is_there()) return false;
    const auto count = references(array_);
    return count ? std::optional(*count != 1) : std::nullopt;
  }
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
