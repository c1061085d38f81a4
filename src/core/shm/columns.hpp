// Copies Python values into columns, and back.
//
// A space is flattened into a tree: inner nodes are dicts and tuples, a leaf is an array with a column
// of its own, or an *object* (text, graphs, custom spaces) that has none and travels pickled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "python/numpy_api.hpp"

namespace remuda {

// One array leaf: its dtype and shape, and where its rows lie.
class Column {
 public:
  Column(nb::object dtype, std::vector<npy_intp> shape, std::byte* base);

  PyArray_Descr* descr() const { return reinterpret_cast<PyArray_Descr*>(dtype_.ptr()); }
  const std::vector<npy_intp>& shape() const { return shape_; }  // of a row
  bool is_int64() const { return is_int64_; }                    // in this machine's byte order
  std::size_t row_bytes() const { return row_bytes_; }
  std::byte* row(std::uint32_t row) const { return base_ + row * row_bytes_; }

  // Whether `value` is an array of `rows` rows with exactly this dtype, shape and C order.
  bool fits(nb::handle value, std::uint32_t rows) const;

  // Writes `value` when it has exactly this dtype, shape and C order (or is a plain number and this a
  // scalar column).  False: nothing was written, and no Python error is set.
  bool write(PyObject* value, std::uint32_t row) const;

  // Writes an array of this shape that a cast makes fit: of float64 where this is of float32, as the observations of
  // many envs are.  False: it is no such array, or holds what NumPy may have something to say about when it casts (too
  // large, too small, not a number); some may have been written, and no Python error is set.
  bool write_cast(PyObject* value, std::uint32_t row) const;

  // A fresh object that shares nothing with the column: an array, or a NumPy scalar for shape ().
  nb::object read(std::uint32_t row) const;

  // A view of `rows` consecutive rows, shape (rows, *shape); `owner` is kept alive by it.
  nb::object view(std::uint32_t first_row, std::uint32_t rows, nb::handle owner) const;
  // A new, uninitialised array of shape (rows, *shape).
  nb::object empty(std::uint32_t rows) const;

 private:
  nb::object array(std::uint32_t rows, void* data) const;
  nb::object scalar(std::uint32_t row) const;
  bool has_shape(PyArrayObject* array, int leading) const;
  bool has_layout(PyArrayObject* array, int leading) const;
  bool has_dtype(PyArray_Descr* dtype) const { return dtype == descr() || PyArray_EquivTypes(dtype, descr()); }
  static bool write_int(PyObject* value, std::byte* target);
  bool write_scalar(PyObject* value, std::byte* target) const;  // of NumPy's

  nb::object dtype_;
  std::vector<npy_intp> shape_;
  std::byte* base_;
  std::size_t row_bytes_;
  bool is_int64_, is_float32_;  // in this machine's byte order: what C++ reads and writes as it is
  // Scalars never change, so those of small discrete choices are made once: reading one is most of what
  // handing an action to a cheap env costs.
  mutable std::vector<nb::object> small_;
};

using Objects = std::vector<nb::object>;

// How a value went into its columns.
enum class Fit {
  kNone,  // not at all, or not as a whole
  kCast,  // in another dtype than it had
  kAsIs,
};

// The shape of a nested value.  Built from nested Python tuples:
//   ("column", i)   ("object", j)   ("dict", ((key, node), ...))   ("tuple", (node, ...))
class Nest {
 public:
  explicit Nest(nb::handle description);

  // Writes the leaves of `value` into `columns` at `row` and appends its object leaves to `objects`, in
  // order.  Where it does not fit, some columns may have been written.
  Fit write(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;

  // Whether a value that went into its columns as it was can be built anew from them without a difference: its leaves
  // are arrays, and its dicts and tuples nothing but that.
  bool is_plain(PyObject* value) const;

  // Takes a nested value apart that has no objects, and appends the leaves in the order of the columns.  A dict may be
  // any mapping, a tuple may be a list.  False when it has another structure.
  bool split(nb::handle value, Objects& leaves) const;

  // Builds the nested value anew.
  nb::object read(const std::vector<Column>& columns, std::uint32_t row, nb::handle objects) const;

 private:
  enum class Kind { kColumn, kObject, kDict, kTuple };
  Fit write_dict(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;
  Fit write_tuple(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;

  Kind kind_;
  std::size_t index_ = 0;  // of the column or the object
  std::vector<nb::object> keys_;
  std::vector<Nest> children_;
};

}  // namespace remuda
