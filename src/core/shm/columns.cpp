#include "shm/columns.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <string>

#include "python/arrays.hpp"
#include "python/dict_items.hpp"

namespace remuda {

namespace {

constexpr npy_int64 kSmall = 64;

// Returns NumPy's own dtype object for NumPy's own number types, which arrays usually have. An unpickled dtype is a
// different object, and comparing two dtypes by value takes longer than writing a number.
nb::object interned(nb::object dtype) {
  auto* descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
  const bool is_number = PyTypeNum_ISNUMBER(descr->type_num) || PyTypeNum_ISBOOL(descr->type_num);
  if (!is_number || !PyArray_ISNBO(descr->byteorder) || PyDataType_METADATA(descr) != nullptr) return dtype;
  return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(descr->type_num)));
}

// Returns whether NumPy certainly emits no warning when it casts the number to float32.
bool is_ordinary(double number, float cast) {
  const float size = std::fabs(cast);
  return (size > FLT_MIN && size <= FLT_MAX) || number == 0.0;
}

bool is_mapping(nb::handle value) {
  return PyDict_Check(value.ptr()) || nb::isinstance(value, nb::module_::import_("collections.abc").attr("Mapping"));
}

}  // namespace

Column::Column(nb::object dtype, std::vector<npy_intp> shape, std::byte* base)
    : dtype_(interned(std::move(dtype))), shape_(std::move(shape)), base_(base) {
  row_bytes_ = static_cast<std::size_t>(PyDataType_ELSIZE(descr()));
  const bool is_native = PyArray_ISNBO(descr()->byteorder);
  is_int64_ = is_native && descr()->type_num == NPY_INT64;
  is_float32_ = is_native && descr()->type_num == NPY_FLOAT32;
  for (npy_intp n : shape_) row_bytes_ *= static_cast<std::size_t>(n);
}

bool Column::fits(nb::handle value, std::uint32_t rows) const {
  if (!PyArray_Check(value.ptr())) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(value.ptr());
  return has_layout(array, 1) && PyArray_DIM(array, 0) == static_cast<npy_intp>(rows);
}

// Whether the array is in C order, and its shape after the first `leading` axes is the shape of the column's rows.
bool Column::has_shape(PyArrayObject* array, int leading) const {
  if (PyArray_NDIM(array) != static_cast<int>(shape_.size()) + leading || !PyArray_IS_C_CONTIGUOUS(array)) return false;
  for (std::size_t i = 0; i < shape_.size(); ++i)
    if (PyArray_DIM(array, static_cast<int>(i) + leading) != shape_[i]) return false;
  return true;
}

// Whether the array has the shape and the dtype of the column.
bool Column::has_layout(PyArrayObject* array, int leading) const {
  return has_shape(array, leading) && has_dtype(PyArray_DESCR(array));
}

bool Column::write(PyObject* value, std::uint32_t row) const {
  std::byte* target = this->row(row);
  if (PyLong_CheckExact(value)) {
    if (!shape_.empty() || !is_int64_) return false;
    int overflow;
    const npy_int64 number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) std::memcpy(target, &number, sizeof number);
    return overflow == 0;
  }
  if (!PyArray_Check(value)) return shape_.empty() && write_scalar(value, target);
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  if (!has_layout(array, 0)) return false;
  std::memcpy(target, PyArray_DATA(array), row_bytes_);
  return true;
}

bool Column::write_cast(PyObject* value, std::uint32_t row) const {
  if (!is_float32_ || !PyArray_CheckExact(value)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  if (PyArray_TYPE(array) != NPY_FLOAT64 || !PyArray_ISBEHAVED_RO(array) || !has_shape(array, 0)) return false;
  const auto* from = static_cast<const double*>(PyArray_DATA(array));
  auto* to = reinterpret_cast<float*>(this->row(row));
  bool all_ordinary = true;
  for (npy_intp i = 0, size = PyArray_SIZE(array); i < size; ++i) {
    to[i] = static_cast<float>(from[i]);
    all_ordinary &= is_ordinary(from[i], to[i]);
  }
  return all_ordinary;
}

bool Column::write_scalar(PyObject* value, std::byte* target) const {
  if (!PyArray_IsScalar(value, Generic)) return false;
  PyArray_Descr* type = PyArray_DescrFromScalar(value);
  const bool same = has_dtype(type);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
  if (same) PyArray_ScalarAsCtype(value, target);
  return same;
}

nb::object Column::scalar(std::uint32_t row) const {
  nb::object* cached = nullptr;
  if (is_int64_) {
    npy_int64 number;
    std::memcpy(&number, this->row(row), sizeof number);
    if (number >= 0 && number < kSmall) {
      if (small_.empty()) small_.resize(kSmall);
      cached = &small_[static_cast<std::size_t>(number)];
      if (cached->is_valid()) return *cached;
    }
  }
  nb::object scalar = nb::steal(PyArray_Scalar(this->row(row), descr(), nullptr));
  if (!scalar.is_valid()) nb::raise_python_error();
  if (cached != nullptr) *cached = scalar;
  return scalar;
}

nb::object Column::read(std::uint32_t row) const {
  if (shape_.empty()) return scalar(row);
  nb::object array = new_array(descr(), static_cast<int>(shape_.size()), shape_.data());
  std::memcpy(data_of<std::byte>(array), this->row(row), row_bytes_);
  return array;
}

nb::object Column::array(std::uint32_t rows, void* data) const {
  return new_rows(descr(), static_cast<npy_intp>(rows), static_cast<int>(shape_.size()), shape_.data(), data);
}

nb::object Column::view(std::uint32_t first_row, std::uint32_t rows, nb::handle owner) const {
  nb::object view = array(rows, row(first_row));
  // PyArray_SetBaseObject steals the reference to `owner`, which the view keeps alive.
  if (PyArray_SetBaseObject(as_array(view), owner.inc_ref().ptr()) < 0) nb::raise_python_error();
  return view;
}

Nest::Nest(nb::handle description) {
  const auto kind = nb::cast<std::string>(description[0]);
  nb::object body = description[1];
  if (kind == "column" || kind == "object") {
    kind_ = kind == "column" ? Kind::kColumn : Kind::kObject;
    index_ = nb::cast<std::size_t>(body);
    return;
  }
  kind_ = kind == "dict" ? Kind::kDict : Kind::kTuple;
  for (nb::handle child : body) {
    if (kind_ == Kind::kDict) {
      keys_.push_back(nb::borrow(child[0]));
      children_.emplace_back(child[1]);
    } else {
      children_.emplace_back(child);
    }
  }
}

Fit Nest::write(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const {
  switch (kind_) {
    case Kind::kColumn:
      if (columns[index_].write(value, row)) return PyArray_CheckExact(value) ? Fit::kPlain : Fit::kAsIs;
      return columns[index_].write_cast(value, row) ? Fit::kCast : Fit::kNone;
    case Kind::kObject:
      objects.push_back(nb::borrow(value));
      return Fit::kAsIs;
    case Kind::kDict:
      return write_dict(value, columns, row, objects);
    case Kind::kTuple:
      return write_tuple(value, columns, row, objects);
  }
  return Fit::kNone;
}

// Writes a dict. Keys that are not in the space are ignored.
Fit Nest::write_dict(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const {
  if (!PyDict_Check(value)) return Fit::kNone;
  const bool is_plain = PyDict_CheckExact(value) && PyDict_GET_SIZE(value) == static_cast<Py_ssize_t>(keys_.size());
  Fit whole = is_plain ? Fit::kPlain : Fit::kAsIs;
  for (std::size_t i = 0; i < keys_.size() && whole != Fit::kNone; ++i) {
    const nb::object child = item(value, keys_[i]);
    if (!child.is_valid()) return Fit::kNone;
    whole = std::min(whole, children_[i].write(child.ptr(), columns, row, objects));
  }
  return whole;
}

Fit Nest::write_tuple(PyObject* value, const std::vector<Column>& columns, std::uint32_t row, Objects& objects) const {
  if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != static_cast<Py_ssize_t>(children_.size())) return Fit::kNone;
  Fit whole = PyTuple_CheckExact(value) ? Fit::kPlain : Fit::kAsIs;
  for (std::size_t i = 0; i < children_.size() && whole != Fit::kNone; ++i)
    whole =
        std::min(whole, children_[i].write(PyTuple_GET_ITEM(value, static_cast<Py_ssize_t>(i)), columns, row, objects));
  return whole;
}

bool Nest::split(nb::handle value, Objects& leaves) const {
  if (kind_ == Kind::kColumn) {
    leaves.push_back(nb::borrow(value));
    return true;
  }
  if (kind_ == Kind::kDict) {
    if (!is_mapping(value)) return false;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const int has = PySequence_Contains(value.ptr(), keys_[i].ptr());
      if (has < 0) nb::raise_python_error();
      if (has == 0 || !children_[i].split(value[keys_[i]], leaves)) return false;
    }
    return true;
  }
  if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) return false;
  if (nb::len(value) != children_.size()) return false;
  for (std::size_t i = 0; i < children_.size(); ++i)
    if (!children_[i].split(nb::borrow<nb::sequence>(value)[i], leaves)) return false;
  return true;
}

bool Nest::has_objects() const {
  return kind_ == Kind::kObject ||
         std::any_of(children_.begin(), children_.end(), [](const Nest& child) { return child.has_objects(); });
}

nb::object Nest::read(const std::vector<Column>& columns, std::uint32_t row, nb::handle objects) const {
  switch (kind_) {
    case Kind::kColumn:
      return columns[index_].read(row);
    case Kind::kObject:
      return objects[index_];
    case Kind::kDict: {
      nb::dict value;
      for (std::size_t i = 0; i < keys_.size(); ++i) value[keys_[i]] = children_[i].read(columns, row, objects);
      return value;
    }
    case Kind::kTuple: {
      nb::list value;
      for (const Nest& child : children_) value.append(child.read(columns, row, objects));
      return nb::tuple(value);
    }
  }
  return nb::none();
}

}  // namespace remuda
