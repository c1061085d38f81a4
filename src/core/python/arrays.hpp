// Makes NumPy arrays in C order, and reuses those that no caller holds any longer.
//
// Making and freeing an array takes longer than filling a small one.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "python/numpy_api.hpp"

namespace remuda {

inline PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

template <class T>
T* data_of(nb::handle array) {
  return static_cast<T*>(PyArray_DATA(as_array(array)));
}

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

// Creates an uninitialised array of one axis. `type`: NumPy's number of the dtype.
inline nb::object new_vector(std::size_t size, int type) {
  const auto shape = static_cast<npy_intp>(size);
  PyObject* array = PyArray_SimpleNew(1, &shape, type);
  if (array == nullptr) nb::raise_python_error();
  return nb::steal(array);
}

// Creates an array of these numbers. `Number` is the C type of NumPy's `type`.
template <class Number, class T>
nb::object vector_of(const std::vector<T>& numbers, int type) {
  nb::object array = new_vector(numbers.size(), type);
  std::copy(numbers.begin(), numbers.end(), data_of<Number>(array));
  return array;
}

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

// An array that the core has made and keeps, to hand it out again once no caller holds it. Every holder of the array
// has a reference to it. Without a holder, only weak references lead to the array.
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
  PyArrayObject* get() const { return as_array(array_); }

  nb::object array_;
  int flags_ = 0;
};

// Small arrays for one purpose, which are handed out again once no caller holds them.
//
// Two arrays are kept, because a caller still holds the last array while it requests the next. A caller that holds both
// gets a new array.
class ReusedArrays {
 public:
  // Returns an array of shape (rows, *shape) that no caller holds. Its content is arbitrary.
  nb::object take(PyArray_Descr* dtype, npy_intp rows, int axes = 0, const npy_intp* shape = nullptr) {
    for (MadeArray& one : arrays_) {
      const std::optional<bool> is_held = one.is_held();
      if (is_held == true) continue;
      if (!is_held || one.is_weakly_referenced()) {
        const MadeArray ended = std::exchange(one, MadeArray());
      } else if (one.is(dtype, rows, axes, shape)) {
        return one.object();
      }
    }
    nb::object array = new_rows(dtype, rows, axes, shape);
    last_ = (last_ + 1) % arrays_.size();
    // Destroying the replaced array may run arbitrary code, so it happens last.
    const MadeArray before = std::exchange(arrays_[last_], MadeArray(array));
    return array;
  }

 private:
  std::array<MadeArray, 2> arrays_;
  std::size_t last_ = 0;
};

}  // namespace remuda
