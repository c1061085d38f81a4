#include "shm/info_reader.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

namespace remuda {

namespace {

PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

nb::object checked(PyObject* object) {
  if (object == nullptr) nb::raise_python_error();
  return nb::steal(object);
}

nb::object zeros(std::vector<npy_intp> shape, PyArray_Descr* dtype) {
  Py_INCREF(reinterpret_cast<PyObject*>(dtype));  // Zeros steals it
  return checked(PyArray_Zeros(static_cast<int>(shape.size()), shape.data(), dtype, 0));
}

void put(PyObject*& place, nb::object value) {
  PyObject* before = std::exchange(place, value.release().ptr());
  Py_XDECREF(before);
}

// An array of None.
nb::object objects(npy_intp n) {
  nb::object array = checked(PyArray_SimpleNew(1, &n, NPY_OBJECT));
  auto** items = static_cast<PyObject**>(PyArray_DATA(as_array(array)));
  for (npy_intp i = 0; i < n; ++i) put(items[i], nb::none());
  return array;
}

void set_object(nb::handle array, std::size_t i, nb::object value) {
  put(static_cast<PyObject**>(PyArray_DATA(as_array(array)))[i], std::move(value));
}

// What a dict has under a key; null: nothing.
nb::object get(const nb::dict& dict, const nb::object& key) {
  PyObject* value = PyDict_GetItemWithError(dict.ptr(), key.ptr());
  if (value == nullptr && PyErr_Occurred()) nb::raise_python_error();
  return nb::borrow(value);
}

void set(nb::dict& dict, const nb::object& key, const nb::object& value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) < 0) nb::raise_python_error();
}

// The dict that a dict has under a key, which it has from now on.
nb::dict sub_dict(nb::dict& dict, const nb::object& key) {
  nb::object known = get(dict, key);
  if (known.is_valid()) return nb::borrow<nb::dict>(known);
  nb::dict made;
  set(dict, key, made);
  return made;
}

// Says in a mask in Gymnasium's format that these rows have something.
void mark(nb::dict& stacked, const nb::object& key, npy_intp n, const std::vector<npy_intp>& having) {
  nb::object mask = get(stacked, key);
  if (!mask.is_valid()) {
    mask = checked(PyArray_ZEROS(1, &n, NPY_BOOL, 0));
    set(stacked, key, mask);
  }
  auto* flags = static_cast<npy_bool*>(PyArray_DATA(as_array(mask)));
  for (npy_intp row : having) flags[row] = NPY_TRUE;
}

nb::object interned(const char* text) { return checked(PyUnicode_InternFromString(text)); }

}  // namespace

// The columns of a batch, which outlive this.
class InfoReader::Rows {
 public:
  Rows(const InfoReader& reader, nb::handle mask, nb::handle arrays) {
    auto* masks = as_array(mask);
    if (!PyArray_Check(mask.ptr()) || PyArray_TYPE(masks) != NPY_UINT64 || PyArray_NDIM(masks) != 1 ||
        !PyArray_ISCARRAY_RO(masks))
      throw nb::type_error("expected a contiguous (n,) array of uint64 as the mask");
    masks_ = static_cast<const std::uint64_t*>(PyArray_DATA(masks));
    size_ = static_cast<std::size_t>(PyArray_DIM(masks, 0));
    if (arrays.is_none()) return;
    for (nb::handle array : nb::borrow<nb::list>(arrays)) {
      if (columns_.size() == reader.columns_.size()) break;
      columns_.push_back(checked_rows(array));
    }
    known_ = columns_.size() < 64 ? (std::uint64_t{1} << columns_.size()) - 1 : ~std::uint64_t{0};
  }

  std::size_t size() const { return size_; }
  std::size_t num_columns() const { return columns_.size(); }
  // A worker that ran wild may have set any bit.
  std::uint64_t mask(std::size_t row) const { return masks_[row] & known_; }
  PyArrayObject* array(std::size_t column) const { return columns_[column]; }
  // Not the stride, which may be anything where there is one row.
  std::size_t row_bytes(std::size_t column) const {
    return static_cast<std::size_t>(PyArray_NBYTES(columns_[column])) / size_;
  }
  char* at(std::size_t column, std::size_t row) const {
    return PyArray_BYTES(columns_[column]) + row * row_bytes(column);
  }
  // As an object of its own.
  nb::object value(Kind kind, std::size_t column, std::size_t row) const {
    PyArrayObject* array = columns_[column];
    char* place = at(column, row);
    if (kind == Kind::kNumber) return checked(PyArray_GETITEM(array, place));
    if (kind == Kind::kScalar) return checked(PyArray_Scalar(place, PyArray_DESCR(array), nullptr));
    Py_INCREF(reinterpret_cast<PyObject*>(PyArray_DESCR(array)));  // NewFromDescr steals it
    nb::object copy = checked(PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), PyArray_NDIM(array) - 1,
                                                   PyArray_DIMS(array) + 1, nullptr, nullptr, 0, nullptr));
    std::memcpy(PyArray_DATA(as_array(copy)), place, row_bytes(column));
    return copy;
  }

 private:
  PyArrayObject* checked_rows(nb::handle array) const {
    auto* rows = as_array(array);
    if (!PyArray_Check(array.ptr()) || !PyArray_IS_C_CONTIGUOUS(rows) || PyArray_NDIM(rows) == 0 ||
        static_cast<std::size_t>(PyArray_DIM(rows, 0)) != size_)
      throw nb::type_error("expected contiguous arrays of as many rows as the mask has");
    return rows;
  }

  const std::uint64_t* masks_;
  std::size_t size_;
  std::uint64_t known_ = 0;
  std::vector<PyArrayObject*> columns_;
};

void InfoReader::add(const nb::tuple& path, nb::handle type) {
  const bool is_number = type.is(&PyFloat_Type) || type.is(&PyLong_Type) || type.is(&PyBool_Type);
  const Kind kind = is_number ? Kind::kNumber : type.is(&PyArray_Type) ? Kind::kArray : Kind::kScalar;
  std::vector<nb::object> keys, mask_keys;
  for (nb::handle key : path) {
    keys.push_back(nb::borrow(key));
    mask_keys.push_back(checked(PyUnicode_FromFormat("_%U", key.ptr())));
  }
  const bool is_final_obs = PyUnicode_CompareWithASCIIString(keys.at(0).ptr(), "final_obs") == 0;
  has_final_obs_ |= is_final_obs;
  columns_.push_back({std::move(keys), std::move(mask_keys), kind, type.is(&PyBoolArrType_Type), is_final_obs});
}

nb::list InfoReader::infos(nb::handle mask, nb::handle arrays) const {
  const Rows rows(*this, mask, arrays);
  nb::list infos;
  for (std::size_t row = 0; row < rows.size(); ++row) infos.append(info_of(rows, row));
  return infos;
}

nb::dict InfoReader::info(nb::handle mask, nb::handle arrays, std::size_t row) const {
  const Rows rows(*this, mask, arrays);
  if (row >= rows.size()) throw nb::index_error("there is no such row");
  return info_of(rows, row);
}

nb::dict InfoReader::info_of(const Rows& rows, std::size_t row) const {
  nb::dict dict;
  for (std::uint64_t mask = rows.mask(row); mask != 0; mask &= mask - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(mask));
    const Column& column = columns_[i];
    nb::dict inner = dict;
    for (std::size_t k = 0; k + 1 < column.keys.size(); ++k) inner = sub_dict(inner, column.keys[k]);
    set(inner, column.keys.back(), rows.value(column.kind, i, row));
  }
  return dict;
}

nb::dict InfoReader::stack(nb::handle mask, nb::handle arrays, nb::handle finals) const {
  static const nb::handle kNames[] = {interned("final_info").release(), interned("_final_info").release(),
                                      interned("final_obs").release(), interned("_final_obs").release()};
  const Rows rows(*this, mask, arrays);
  nb::dict stacked;
  std::vector<npy_intp> having;
  for (std::size_t i = 0; i < rows.num_columns(); ++i)
    if (!columns_[i].is_final_obs) stack_column(stacked, rows, i, having);
  if (finals.is_none()) return stacked;
  const auto n = static_cast<npy_intp>(rows.size());
  nb::object final_obs = objects(n);
  having.clear();
  for (auto [row, obs] : nb::borrow<nb::dict>(finals)) {
    const auto i = nb::cast<std::size_t>(row);
    if (i >= rows.size()) throw nb::index_error("there is no such row");
    set_object(final_obs, i, nb::borrow(obs));
    having.push_back(static_cast<npy_intp>(i));
  }
  sub_dict(stacked, nb::borrow(kNames[0]));
  mark(stacked, nb::borrow(kNames[1]), n, having);
  set(stacked, nb::borrow(kNames[2]), final_obs);
  mark(stacked, nb::borrow(kNames[3]), n, having);
  return stacked;
}

// `having`: room for the rows that have it.
void InfoReader::stack_column(nb::dict& stacked, const Rows& rows, std::size_t i, std::vector<npy_intp>& having) const {
  having.clear();
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows.mask(row) >> i & 1) having.push_back(static_cast<npy_intp>(row));
  if (having.empty()) return;
  const Column& column = columns_[i];
  const auto n = static_cast<npy_intp>(rows.size());
  nb::dict inner = stacked;
  for (std::size_t k = 0; k + 1 < column.keys.size(); ++k) {
    mark(inner, column.mask_keys[k], n, having);
    inner = sub_dict(inner, column.keys[k]);
  }
  PyArrayObject* from = rows.array(i);
  const npy_intp* shape = PyArray_DIMS(from);
  nb::object to = column.is_object ? objects(n) : zeros({shape, shape + PyArray_NDIM(from)}, PyArray_DESCR(from));
  for (npy_intp row : having) {
    const auto at = static_cast<std::size_t>(row);
    if (column.is_object)
      set_object(to, at, rows.value(column.kind, i, at));
    else
      std::memcpy(PyArray_BYTES(as_array(to)) + at * rows.row_bytes(i), rows.at(i, at), rows.row_bytes(i));
  }
  set(inner, column.keys.back(), to);
  mark(inner, column.mask_keys.back(), n, having);
}

}  // namespace remuda
