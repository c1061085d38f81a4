#include "shm/infos.hpp"

#include <cstring>

namespace remuda {

namespace {

bool may_have_column(PyObject* value) {
  return PyFloat_Check(value) || PyLong_Check(value) || PyArray_IsScalar(value, Number) ||
         PyArray_IsScalar(value, Bool) || PyArray_Check(value);
}

}  // namespace

void InfoWriter::add(nb::object key, nb::object type, Column column) {
  index_[key] = entries_.size();
  entries_.push_back({std::move(type), std::move(column)});
}

std::uint64_t InfoWriter::write(nb::handle info, std::uint32_t row, Rest& rest) {
  std::uint64_t mask = 0;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(info.ptr(), &position, &key, &value)) {
    PyObject* number = PyDict_GetItemWithError(index_.ptr(), key);
    if (number != nullptr) {
      std::size_t column = PyLong_AsSize_t(number);
      if (write_value(entries_[column], value, row)) {
        mask |= std::uint64_t{1} << column;
        continue;
      }
    } else if (PyErr_Occurred()) {
      nb::raise_python_error();
    }
    leave_over(key, value, rest);
  }
  return mask;
}

bool InfoWriter::write_value(const Entry& entry, PyObject* value, std::uint32_t row) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != entry.type.ptr()) return false;
  if (PyFloat_CheckExact(value)) {
    double number = PyFloat_AS_DOUBLE(value);
    std::memcpy(entry.column.row(row), &number, sizeof number);
    return true;
  }
  if (PyBool_Check(value)) {
    *entry.column.row(row) = std::byte{value == Py_True};
    return true;
  }
  return entry.column.write(value, row);
}

void InfoWriter::leave_over(PyObject* key, PyObject* value, Rest& rest) {
  if (!rest.info.is_valid()) rest.info = nb::dict();
  if (PyDict_SetItem(rest.info.ptr(), key, value) < 0) nb::raise_python_error();
  if (!PyUnicode_CheckExact(key) || !may_have_column(value) || asked_.contains(nb::handle(key))) return;
  asked_.add(nb::handle(key));
  if (!rest.new_keys.is_valid()) rest.new_keys = nb::list();
  nb::borrow<nb::list>(rest.new_keys).append(nb::handle(key));
}

}  // namespace remuda
