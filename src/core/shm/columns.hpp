// Copies Python values into columns, and back.
//
// A space is flattened into a tree. Its inner nodes are dicts and tuples. A leaf is an array with a column of its own,
// or an *object* (text, graphs, custom spaces) that has no column and travels pickled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "python/numpy_api.hpp"

namespace remuda {

// One array leaf: its dtype and shape, and the location of its rows. It does not own the rows.
class Column {
 public:
  Column(nb::object dtype, std::vector<npy_intp> shape, std::byte* base);

  PyArray_Descr* descr() const { return reinterpret_cast<PyArray_Descr*>(dtype_.ptr()); }
  const std::vector<npy_intp>& shape() const { return shape_; }  // The shape of a row.
  std::size_t row_bytes() const { return row_bytes_; }
  std::byte* row(std::uint32_t row) const { return base_ + row * row_bytes_; }

  // Whether `value` is an array of `rows` rows with exactly this dtype, shape and C order.
  bool fits(nb::handle value, std::uint32_t rows) const;

  // Writes `value` if it has exactly this dtype, shape and C order, or if it is a plain number and this is a scalar
  // column. Returns false, without a Python error, if nothing was written.
  bool write(PyObject* value, std::uint32_t row) const;

  // Writes a float64 array of the column's shape to a float32 column. Many envs return such observations. Returns
  // false, without a Python error, for any other value. It also returns false for numbers that NumPy might warn about
  // when it casts them (overflow, underflow, NaN); then part of the row may have been written.
  bool write_cast(PyObject* value, std::uint32_t row) const;

  // Returns a new object that shares no memory with the column: an array, or a NumPy scalar for shape ().
  nb::object read(std::uint32_t row) const;

  // Returns a view of `rows` consecutive rows, shape (rows, *shape). The view keeps `owner` alive.
  nb::object view(std::uint32_t first_row, std::uint32_t rows, nb::handle owner) const;
  // Returns a new array of shape (rows, *shape) over `data`, or, if that is null, with uninitialised memory of its own.
  nb::object array(std::uint32_t rows, void* data = nullptr) const;

 private:
  nb::object scalar(std::uint32_t row) const;
  bool has_shape(PyArrayObject* array, int leading) const;
  bool has_layout(PyArrayObject* array, int leading) const;
  bool has_dtype(PyArray_Descr* dtype) const { return dtype == descr() || PyArray_EquivTypes(dtype, descr()); }
  bool write_scalar(PyObject* value, std::byte* target) const;  // writes a NumPy scalar

  nb::object dtype_;
  std::vector<npy_intp> shape_;
  std::byte* base_;
  std::size_t row_bytes_;
  // Both are true only for native byte order, because C++ reads and writes these numbers directly.
  bool is_int64_, is_float32_;
  // Scalars for small discrete choices, made once. They are immutable, so many readers can share one. Making a new
  // scalar would be most of the cost of passing an action to a cheap env.
  mutable std::vector<nb::object> small_;
};

using Objects = std::vector<nb::object>;

// How a value was written to its columns.
enum class Fit {
  kNone,  // The value does not fit. Part of it may have been written.
  kCast,  // The value was written with a cast to another dtype.
  kAsIs,
  // Like kAsIs, and the value consists of arrays, dicts and tuples only (no subclasses). `Nest::read` rebuilds it
  // exactly.
  kPlain,
};

// The structure of a nested value. It is built from nested Python tuples:
//
//   ("column", i)   ("object", j)   ("dict", ((key, node), ...))   ("tuple", (node, ...))
class Nest {
 public:
  explicit Nest(nb::handle description);

  // Writes the leaves of `value` into `columns` at `row` and appends its object leaves to `objects`, in order. If it
  // returns Fit::kNone, some columns may have been written.
  Fit write(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;

  // Splits a nested value without objects, and appends its leaves in the order of the columns. Accepts any mapping in
  // place of a dict, and a list in place of a tuple. Returns false if the value has another structure.
  bool split(nb::handle value, Objects& leaves) const;

  // Whether some leaves have no column.
  bool has_objects() const;

  // Rebuilds the nested value from its columns and object leaves.
  nb::object read(const std::vector<Column>& columns, std::uint32_t row, nb::handle objects) const;

 private:
  enum class Kind { kColumn, kObject, kDict, kTuple };
  Fit write_dict(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;
  Fit write_tuple(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const;

  Kind kind_;
  std::size_t index_ = 0;  // the index of the column or the object
  std::vector<nb::object> keys_;
  std::vector<Nest> children_;
};

}  // namespace remuda
