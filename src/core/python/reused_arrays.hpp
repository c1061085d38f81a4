// Small arrays for one purpose, which are handed out again once no caller holds them.
//
// Two arrays are kept, because a caller still holds the last array while it requests the next. A caller that holds both
// gets a new array.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "python/made_array.hpp"
#include "python/new_array.hpp"

namespace remuda {

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
