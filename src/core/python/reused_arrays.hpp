// Small arrays for one purpose, which are handed out again once nobody holds them any more.
//
// There are two, as callers hold the last one while they ask for the next.  Who keeps more of them gets new ones.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "python/made_array.hpp"
#include "python/new_array.hpp"

namespace remuda {

class ReusedArrays {
 public:
  // An array (rows, *shape) that nobody else holds, with whatever is in it.
  nb::object take(PyArray_Descr* dtype, npy_intp rows, int axes = 0, const npy_intp* shape = nullptr) {
    for (MadeArray& one : arrays_) {
      if (one.is_held()) continue;
      if (one.is_weakly_referenced()) {
        const MadeArray ended = std::exchange(one, MadeArray());
      } else if (one.is(dtype, rows, axes, shape)) {
        return one.object();
      }
    }
    nb::object array = new_rows(dtype, rows, axes, shape);
    last_ = (last_ + 1) % arrays_.size();
    // The end of the one before may call anybody: it comes last.
    const MadeArray before = std::exchange(arrays_[last_], MadeArray(array));
    return array;
  }

 private:
  std::array<MadeArray, 2> arrays_;
  std::size_t last_ = 0;
};

}  // namespace remuda
