#include "shm/info_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "python/arrays.hpp"
#include "python/dict_items.hpp"

namespace remuda {

namespace {

nb::object checked(PyObject* object) {
  if (object == nullptr) nb::raise_python_error();
  return nb::steal(object);
}

void put(PyObject*& place, nb::object value) {
  PyObject* before = std::exchange(place, value.release().ptr());
  Py_XDECREF(before);
}

// Returns an array of n None objects.
nb::object objects(npy_intp n) {
  nb::object array = new_vector(static_cast<std::size_t>(n), NPY_OBJECT);
  auto** items = data_of<PyObject*>(array);
  for (npy_intp i = 0; i < n; ++i) put(items[i], nb::none());
  return array;
}

void set(nb::dict& dict, const nb::object& key, const nb::object& value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) < 0) nb::raise_python_error();
}

// Returns the dict under a key, and creates it if it is missing.
nb::dict sub_dict(nb::dict& dict, const nb::object& key) {
  nb::object known = item(dict, key);
  if (known.is_valid()) return nb::borrow<nb::dict>(known);
  nb::dict made;
  set(dict, key, made);
  return made;
}

// Returns an uninitialised array of bools. Gymnasium's infos have such a mask for each key: the envs that have the key.
nb::object flags(ReusedArrays& masks, npy_intp n) {
  static PyArray_Descr* const dtype = PyArray_DescrFromType(NPY_BOOL);
  return masks.take(dtype, n);
}

// Returns the mask of the rows that have a value in any of these columns.
nb::object having_any(ReusedArrays& masks, const InfoRows& rows, std::uint64_t columns) {
  nb::object mask = flags(masks, static_cast<npy_intp>(rows.size()));
  npy_bool* const to = data_of<npy_bool>(mask);
  for (std::size_t row = 0; row < rows.size(); ++row) to[row] = (rows.mask(row) & columns) != 0;
  return mask;
}

// Returns the number as a Python float, int or bool. Numbers of other Python types have no column, see PYTHON_NUMBERS.
nb::object number(const InfoRows::Leaf& leaf, const std::byte* from) {
  if (leaf.dtype->type_num == NPY_FLOAT64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return checked(PyFloat_FromDouble(value));
  }
  if (leaf.dtype->type_num == NPY_INT64) {
    npy_int64 value;
    std::memcpy(&value, from, sizeof value);
    return checked(PyLong_FromLongLong(value));
  }
  if (leaf.dtype->type_num == NPY_BOOL) return nb::bool_(*from != std::byte{0});
  throw nb::type_error("expected columns of float64, int64 or bool for Python's numbers");
}

}  // namespace

InfoRows::InfoRows(nb::handle mask, nb::handle arrays, std::size_t most) {
  auto* masks = as_array(mask);
  if (!PyArray_Check(mask.ptr()) || PyArray_TYPE(masks) != NPY_UINT64 || PyArray_NDIM(masks) != 1 ||
      !PyArray_ISCARRAY_RO(masks))
    throw nb::type_error("expected a contiguous (n,) array of uint64 as the mask");
  masks_ = data_of<const std::uint64_t>(mask);
  size_ = static_cast<std::size_t>(PyArray_DIM(masks, 0));
  if (arrays.is_none()) return;
  const auto list = nb::borrow<nb::list>(arrays);
  for (std::size_t i = 0; i < std::min(most, list.size()); ++i) add(nb::object(list[i]));
}

void InfoRows::add(const Column& column, std::uint32_t first_row) {
  add({column.descr(), column.shape().data(), static_cast<int>(column.shape().size()), column.row(first_row),
       column.row_bytes()});
}

void InfoRows::add(nb::handle array) {
  auto* rows = as_array(array);
  if (!PyArray_Check(array.ptr()) || !PyArray_IS_C_CONTIGUOUS(rows) || PyArray_NDIM(rows) == 0 ||
      static_cast<std::size_t>(PyArray_DIM(rows, 0)) != size_)
    throw nb::type_error("expected contiguous arrays of as many rows as the mask has");
  // Computes the bytes of a row from the size: the array's stride is arbitrary if there is only one row.
  const auto row_bytes = static_cast<std::size_t>(PyArray_NBYTES(rows)) / std::max<std::size_t>(size_, 1);
  add({PyArray_DESCR(rows), PyArray_DIMS(rows) + 1, PyArray_NDIM(rows) - 1, data_of<const std::byte>(array),
       row_bytes});
}

void InfoReader::add(const nb::tuple& path, nb::handle type) {
  const bool is_number = type.is(&PyFloat_Type) || type.is(&PyLong_Type) || type.is(&PyBool_Type);
  const Kind kind = is_number ? Kind::kNumber : type.is(&PyArray_Type) ? Kind::kArray : Kind::kScalar;
  std::vector<nb::object> keys;
  for (nb::handle key : path) keys.push_back(interned(key));
  const bool is_final_obs = PyUnicode_CompareWithASCIIString(keys.at(0).ptr(), "final_obs") == 0;
  has_final_obs_ |= is_final_obs;
  columns_.push_back({std::move(keys), kind, type.is(&PyBoolArrType_Type)});
  if (!is_final_obs) add_to_tree(columns_.size() - 1);
}

void InfoReader::add_to_tree(std::size_t column) {
  const std::uint64_t bit = std::uint64_t{1} << column;
  Level* level = &tree_;
  Node* node = nullptr;
  for (const nb::object& key : columns_[column].keys) {
    auto& nodes = level->nodes;
    auto known = std::find_if(nodes.begin(), nodes.end(), [&](const Node& one) { return one.key.equal(key); });
    if (known == nodes.end()) {
      known = nodes.insert(known, {key, interned(checked(PyUnicode_FromFormat("_%U", key.ptr())))});
      set(level->all_keys, known->key, nb::none());
      set(level->all_keys, known->mask_key, nb::none());
    }
    node = &*known;
    level->columns |= bit;
    node->columns |= bit;
    level = &node->below;
  }
  node->column = column;
}

nb::list InfoReader::infos(nb::handle mask, nb::handle arrays) const { return infos(rows_of(mask, arrays)); }

nb::list InfoReader::infos(const InfoRows& rows) const {
  nb::list infos;
  for (std::size_t row = 0; row < rows.size(); ++row) infos.append(info_of(rows, row));
  return infos;
}

nb::dict InfoReader::info(nb::handle mask, nb::handle arrays, std::size_t row) const {
  const InfoRows rows = rows_of(mask, arrays);
  if (row >= rows.size()) throw nb::index_error("there is no such row");
  return info_of(rows, row);
}

nb::dict InfoReader::info_of(const InfoRows& rows, std::size_t row) const {
  nb::dict dict;
  for (std::uint64_t mask = rows.mask(row); mask != 0; mask &= mask - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(mask));
    const Column& column = columns_[i];
    nb::dict inner = dict;
    for (std::size_t k = 0; k + 1 < column.keys.size(); ++k) inner = sub_dict(inner, column.keys[k]);
    set(inner, column.keys.back(), value_of(column.kind, rows[i], row));
  }
  return dict;
}

// Returns a value as an object that shares no memory with its column.
nb::object InfoReader::value_of(Kind kind, const InfoRows::Leaf& leaf, std::size_t row) {
  const std::byte* from = leaf.row(row);
  if (kind == Kind::kNumber) return number(leaf, from);
  if (kind == Kind::kScalar) return checked(PyArray_Scalar(const_cast<std::byte*>(from), leaf.dtype, nullptr));
  nb::object copy = new_array(leaf.dtype, leaf.axes, leaf.shape);
  std::memcpy(data_of<std::byte>(copy), from, leaf.row_bytes);
  return copy;
}

nb::dict InfoReader::stack(nb::handle mask, nb::handle arrays, nb::handle finals) {
  return stack(rows_of(mask, arrays), finals);
}

nb::dict InfoReader::stack(const InfoRows& rows, nb::handle finals) {
  std::uint64_t there = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) there |= rows.mask(row);
  nb::dict stacked = stack_level(tree_, rows, there);
  const auto n = static_cast<npy_intp>(rows.size());
  if (!finals.is_none()) add_finals(stacked, nb::borrow<nb::dict>(finals), n);
  return stacked;
}

// Adds what Gymnasium adds for the envs with an episode's end: "final_obs", "final_info" (possibly empty), and their
// masks.
void InfoReader::add_finals(nb::dict& stacked, const nb::dict& finals, npy_intp n) {
  static const nb::handle kNames[] = {
      interned(nb::str("final_info")).release(), interned(nb::str("_final_info")).release(),
      interned(nb::str("final_obs")).release(), interned(nb::str("_final_obs")).release()};
  nb::object final_obs = objects(n);
  nb::object masks[] = {flags(final_info_masks_, n), flags(final_obs_masks_, n)};
  for (nb::object& mask : masks) std::memset(data_of<npy_bool>(mask), 0, static_cast<std::size_t>(n));
  for (auto [row, obs] : finals) {
    const auto i = nb::cast<std::size_t>(row);
    if (i >= static_cast<std::size_t>(n)) throw nb::index_error("there is no such row");
    put(data_of<PyObject*>(final_obs)[i], nb::borrow(obs));
    for (nb::object& mask : masks) data_of<npy_bool>(mask)[i] = NPY_TRUE;
  }
  sub_dict(stacked, nb::borrow(kNames[0]));
  set(stacked, nb::borrow(kNames[1]), masks[0]);
  set(stacked, nb::borrow(kNames[2]), final_obs);
  set(stacked, nb::borrow(kNames[3]), masks[1]);
}

// Stacks the values of the keys of one level. `there`: the bits of the columns that have a value in any row.
nb::dict InfoReader::stack_level(Level& level, const InfoRows& rows, std::uint64_t there) {
  const bool has_all_keys = (level.columns & ~there) == 0;
  nb::dict stacked = has_all_keys ? nb::borrow<nb::dict>(checked(PyDict_Copy(level.all_keys.ptr()))) : nb::dict();
  for (Node& node : level.nodes) {
    if ((node.columns & there) == 0) continue;
    const auto value = [&]() -> nb::object {
      if (!node.column) return stack_level(node.below, rows, there);
      return columns_[*node.column].is_object ? stack_objects(rows, *node.column)
                                              : stack_column(rows, *node.column, node.values);
    };
    set(stacked, node.key, value());
    set(stacked, node.mask_key, having_any(node.masks, rows, node.columns));
  }
  return stacked;
}

nb::object InfoReader::stack_column(const InfoRows& rows, std::size_t i, ReusedArrays& values) const {
  const InfoRows::Leaf& leaf = rows[i];
  nb::object to = values.take(leaf.dtype, static_cast<npy_intp>(rows.size()), leaf.axes, leaf.shape);
  auto* const data = data_of<std::byte>(to);
  std::memset(data, 0, leaf.row_bytes * rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row)
    if ((rows.mask(row) >> i & 1) != 0) std::memcpy(data + row * leaf.row_bytes, leaf.row(row), leaf.row_bytes);
  return to;
}

nb::object InfoReader::stack_objects(const InfoRows& rows, std::size_t i) const {
  nb::object to = objects(static_cast<npy_intp>(rows.size()));
  for (std::size_t row = 0; row < rows.size(); ++row)
    if ((rows.mask(row) >> i & 1) != 0) put(data_of<PyObject*>(to)[row], value_of(columns_[i].kind, rows[i], row));
  return to;
}

}  // namespace remuda
