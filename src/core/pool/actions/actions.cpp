#include "pool/actions/actions.hpp"

#include <cstring>
#include <stdexcept>

#include "python/arrays.hpp"

namespace remuda {

namespace {

// Whether every `step`-th of these int64 values, which may be unaligned, is within the bounds.
bool are_within(const std::byte* numbers, std::size_t count, std::size_t step, const ActionColumn::Bounds& bounds) {
  const auto first = static_cast<std::uint64_t>(bounds.first);
  const std::uint64_t width = static_cast<std::uint64_t>(bounds.second) - first;
  // Numbers below `first` wrap around, and are too large. A comparison would be `number - first <= width`, but not all
  // processors have vector instructions for it. Where a number is outside, one of the two has its sign bit set.
  std::uint64_t signs = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t number;
    std::memcpy(&number, numbers + i * step * sizeof number, sizeof number);
    signs |= (number - first) | (width - (number - first));
  }
  return signs >> 63 == 0;
}

}  // namespace

nb::object ActionColumn::convert(nb::handle value, std::uint32_t count) const {
  nb::object array = column_.fits(value, count) ? nb::borrow(value) : cast(value, count);
  return array.is_valid() && are_choices(array) ? array : nb::object();
}

// Casts an array to the column's type if NumPy calls the cast safe, or if both types are floats. Returns null for other
// values. May run user code.
nb::object ActionColumn::cast(nb::handle value, std::uint32_t count) const {
  const nb::object array = nb::steal(PyArray_FromAny(value.ptr(), nullptr, 0, 0, NPY_ARRAY_ENSUREARRAY, nullptr));
  if (!array.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) nb::raise_python_error();  // re-raises an interrupt
    PyErr_Clear();
    return {};
  }
  PyArray_Descr *from = PyArray_DESCR(as_array(array)), *to = column_.descr();
  const bool are_floats = from->kind == 'f' && to->kind == 'f';
  if (!are_floats && !PyArray_CanCastTypeTo(from, to, NPY_SAFE_CASTING)) return {};
  Py_INCREF(reinterpret_cast<PyObject*>(to));  // PyArray_FromArray steals a reference
  nb::object same = nb::steal(PyArray_FromArray(as_array(array), to, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  if (!same.is_valid()) nb::raise_python_error();  // raises NumPy's warning if a filter made it an error
  return column_.fits(same, count) ? same : nb::object();
}

// Returns whether all numbers are within the bounds of the space. `array` must have the column's dtype.
bool ActionColumn::are_choices(nb::handle array) const {
  if (!bounds_) return true;
  const std::size_t pairs = bounds_->size();
  if (pairs == 0) return false;
  const std::size_t rows = static_cast<std::size_t>(PyArray_SIZE(as_array(array))) / pairs;
  for (std::size_t pair = 0; pair < pairs; ++pair)
    if (!are_within(data_of<std::byte>(array) + pair * sizeof(std::int64_t), rows, pairs, (*bounds_)[pair]))
      return false;
  return true;
}

void ActionColumn::write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part,
                         const Slots& slots) const {
  const auto* from = data_of<std::byte>(array);
  const std::size_t bytes = column_.row_bytes();
  if ((&targets == &part.slots() || targets == part.slots()) && part.has_actions_in_order()) {
    std::memcpy(column_.row(part.next_action_row(part.first_position())), from, bytes * targets.size());
  } else {
    for (std::size_t i = 0; i < targets.size(); ++i)
      std::memcpy(column_.row(part.next_action_row(slots[targets[i]].position)), from + i * bytes, bytes);
  }
}

Actions::Leaves Actions::take_apart(nb::handle actions, std::uint32_t count) const {
  Leaves leaves;
  leaves.reserve(columns_.size());
  if (nest_.split(actions, leaves) && convert_each(leaves, count)) return leaves;
  leaves.clear();
  for (nb::handle leaf : convert_(actions, count)) leaves.push_back(nb::borrow(leaf));
  if (leaves.size() != columns_.size()) throw std::logic_error("an array for each column of the actions");
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (!columns_[i].column().fits(leaves[i], count)) throw std::logic_error("arrays of the columns' dtype and shape");
  return leaves;
}

// Converts each leaf in place. Returns false if a leaf needs the conversion in Python.
bool Actions::convert_each(Leaves& leaves, std::uint32_t count) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i] = columns_[i].convert(leaves[i], count);
    if (!leaves[i].is_valid()) return false;
  }
  return true;
}

void Actions::write(const Leaves& leaves, const std::vector<std::uint32_t>& targets, const Part& part,
                    const Slots& slots) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) columns_[i].write(leaves[i], targets, part, slots);
}

void Actions::move(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) const {
  for (const ActionColumn& each : columns_) {
    const std::size_t bytes = each.column().row_bytes();
    if (bytes == 0) continue;  // The address of an empty vector may be null, which memcpy must not get.
    std::vector<std::byte> actions(from.size() * bytes);
    for (std::size_t i = 0; i < from.size(); ++i)
      std::memcpy(actions.data() + i * bytes, each.column().row(from[i]), bytes);
    for (std::size_t i = 0; i < to.size(); ++i)
      std::memcpy(each.column().row(to[i]), actions.data() + i * bytes, bytes);
  }
}

std::vector<Column> Actions::columns() const {
  std::vector<Column> columns;
  for (const ActionColumn& column : columns_) columns.push_back(column.column());
  return columns;
}

}  // namespace remuda
