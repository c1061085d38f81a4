#include "pool/actions/action_column.hpp"

#include <algorithm>
#include <cstring>

namespace remuda {

namespace {

PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

// What a call of NumPy's has made; null where it raised an error of the value, which is forgotten.
nb::object made(PyObject* array) {
  if (array != nullptr) return nb::steal(array);
  if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();
  PyErr_Clear();
  return {};
}

// The same numbers in C order and this machine's byte order.
nb::object as_type(PyArrayObject* array, int type) {
  PyObject* same = PyArray_FromArray(array, PyArray_DescrFromType(type), NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (same == nullptr) nb::raise_python_error();
  return nb::steal(same);
}

template <class T>
const T* numbers_of(nb::handle array) {
  return static_cast<const T*>(PyArray_DATA(as_array(array)));
}

std::size_t size_of(PyArrayObject* array) { return static_cast<std::size_t>(PyArray_SIZE(array)); }

bool is_real(char kind) { return kind == 'b' || kind == 'i' || kind == 'u' || kind == 'f'; }

template <class Wide>
Choices<Wide> read_choices(nb::sequence bounds) {
  std::vector<std::pair<Wide, Wide>> pairs;
  for (nb::handle pair : bounds) pairs.emplace_back(nb::cast<Wide>(pair[0]), nb::cast<Wide>(pair[1]));
  return Choices<Wide>(std::move(pairs));
}

std::vector<npy_intp> without_unit_axes(const npy_intp* shape, std::size_t axes) {
  std::vector<npy_intp> others;
  std::copy_if(shape, shape + axes, std::back_inserter(others), [](npy_intp n) { return n != 1; });
  return others;
}

}  // namespace

ActionColumn::ActionColumn(Column column, nb::sequence bounds) : column_(std::move(column)) {
  if (nb::len(bounds) == 0) return;
  if (column_.descr()->kind == 'i')
    choices_ = read_choices<std::int64_t>(bounds);
  else
    choices_ = read_choices<std::uint64_t>(bounds);
}

nb::object ActionColumn::convert(nb::handle value, std::uint32_t count) const {
  nb::object array = column_.fits(value, count) ? nb::borrow(value) : cast(value, count);
  if (!array.is_valid() || !has_choices(as_array(array))) return {};
  return array;
}

nb::object ActionColumn::cast(nb::handle value, std::uint32_t count) const {
  nb::object array = made(PyArray_FromAny(value.ptr(), nullptr, 0, 0, NPY_ARRAY_ENSUREARRAY, nullptr));
  if (array.is_valid()) array = reshape(std::move(array), count);
  if (!array.is_valid() || !keeps_values(as_array(array))) return {};
  PyArray_Descr* descr = column_.descr();
  Py_INCREF(reinterpret_cast<PyObject*>(descr));  // FromArray steals it
  PyObject* same = PyArray_FromArray(as_array(array), descr, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
  if (same == nullptr) nb::raise_python_error();  // a warning of NumPy's, where those are errors
  return nb::steal(same);
}

// With a row for each of `count` envs; null where it has another shape.
nb::object ActionColumn::reshape(nb::object array, std::uint32_t count) const {
  std::vector<npy_intp> shape{static_cast<npy_intp>(count)};
  shape.insert(shape.end(), column_.shape().begin(), column_.shape().end());
  const npy_intp* dims = PyArray_DIMS(as_array(array));
  const auto axes = static_cast<std::size_t>(PyArray_NDIM(as_array(array)));
  if (std::equal(shape.begin(), shape.end(), dims, dims + axes)) return array;
  if (without_unit_axes(shape.data(), shape.size()) != without_unit_axes(dims, axes)) return {};
  PyArray_Dims wanted{shape.data(), static_cast<int>(shape.size())};
  return made(PyArray_Newshape(as_array(array), &wanted, NPY_CORDER));
}

// Whether a cast keeps the meaning: another width of float, or the very same values.
bool ActionColumn::keeps_values(PyArrayObject* array) const {
  PyArray_Descr *from = PyArray_DESCR(array), *to = column_.descr();
  if (from->kind == 'O') return false;
  if (PyArray_CanCastTypeTo(from, to, NPY_SAFE_CASTING)) return true;
  if (to->kind == 'f' && PyArray_CanCastTypeTo(from, to, NPY_SAME_KIND_CASTING)) return true;
  if (!is_real(from->kind) || !is_real(to->kind)) return false;
  if (from->kind == 'f') return all_held<npy_longdouble, long double>(array, NPY_LONGDOUBLE);
  if (from->kind == 'u') return all_held<npy_uint64, std::uint64_t>(array, NPY_UINT64);
  return all_held<npy_int64, std::int64_t>(array, NPY_INT64);
}

// Whether the column's type of integers has all of these numbers. `Wide`, `type`: NumPy's type that has all numbers of
// the array's; `Number`: what it is to us.
template <class Wide, class Number>
bool ActionColumn::all_held(PyArrayObject* array, int type) const {
  const PyArray_Descr* descr = column_.descr();
  const bool is_bool = descr->kind == 'b';
  const IntegerType target{descr->kind == 'i', is_bool ? 1 : 8 * static_cast<int>(PyDataType_ELSIZE(descr))};
  const nb::object wide = as_type(array, type);
  const auto* numbers = numbers_of<Wide>(wide);
  return std::all_of(numbers, numbers + size_of(array),
                     [&](Wide number) { return target.holds(static_cast<Number>(number)); });
}

// `array`: of the column's dtype, in C order.
bool ActionColumn::has_choices(PyArrayObject* array) const {
  if (std::holds_alternative<std::monostate>(choices_)) return true;
  const std::size_t count = size_of(array);
  if (const auto* choices = std::get_if<Choices<std::int64_t>>(&choices_)) {
    if (column_.is_int64()) return choices->hold(static_cast<const std::int64_t*>(PyArray_DATA(array)), count);
    const nb::object wide = as_type(array, NPY_INT64);
    return choices->hold(numbers_of<std::int64_t>(wide), count);
  }
  const nb::object wide = as_type(array, NPY_UINT64);
  return std::get<Choices<std::uint64_t>>(choices_).hold(numbers_of<std::uint64_t>(wide), count);
}

void ActionColumn::write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part,
                         const Slots& slots) const {
  const auto* from = static_cast<const std::byte*>(PyArray_DATA(as_array(array)));
  const std::size_t bytes = column_.row_bytes();
  if ((&targets == &part.slots() || targets == part.slots()) && part.has_actions_in_order()) {
    std::memcpy(column_.row(part.next_action_row(part.first_position())), from, bytes * targets.size());
  } else {
    for (std::size_t i = 0; i < targets.size(); ++i)
      std::memcpy(column_.row(part.next_action_row(slots[targets[i]].position)), from + i * bytes, bytes);
  }
}

}  // namespace remuda
