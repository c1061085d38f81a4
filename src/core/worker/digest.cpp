#include "worker/digest.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "python/arrays.hpp"

namespace remuda {

void Digest::add(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  add_number(bytes);
  std::array<std::uint64_t, 4> words{};
  if (bytes >= 4 * sizeof words) {  // a picture: four states, so that the processor need not wait for each product
    std::array<std::uint64_t, 4> states{state_, state_ + 1, state_ + 2, state_ + 3};
    for (; bytes >= sizeof words; at += sizeof words, bytes -= sizeof words) {
      std::memcpy(words.data(), at, sizeof words);
      for (std::size_t i = 0; i < words.size(); ++i) states[i] = mixed(states[i], words[i]);
    }
    for (std::uint64_t one : states) add_number(one);
  }
  for (; bytes != 0;) {
    const std::size_t some = bytes < sizeof words[0] ? bytes : sizeof words[0];
    std::uint64_t word = 0;
    std::memcpy(&word, at, some);
    add_number(word);
    at += some;
    bytes -= some;
  }
}

void Digest::add(nb::handle value) {
  PyObject* object = value.ptr();
  if (object == Py_None) return add_number('N');
  if (PyBool_Check(object)) return add_number(object == Py_True ? 'T' : 'F');
  if (PyFloat_CheckExact(object)) {
    add_number('f');
    return add_number(std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(object)));
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    add_number('i');
    if (overflow == 0) return add_number(static_cast<std::uint64_t>(number));
    return add(nb::handle(nb::str(value)));
  }
  if (PyUnicode_CheckExact(object)) {
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &bytes);
    if (text != nullptr) return add(text, static_cast<std::size_t>(bytes));
    PyErr_Clear();  // a lone surrogate
    return add(nb::handle(nb::repr(value)));
  }
  if (PyBytes_CheckExact(object)) {
    char* data = nullptr;
    Py_ssize_t bytes = 0;
    if (PyBytes_AsStringAndSize(object, &data, &bytes) < 0) nb::raise_python_error();
    return add(data, static_cast<std::size_t>(bytes));
  }
  if (PyArray_Check(object)) return add_array(value);
  if (PyArray_CheckScalar(object)) return add_array(nb::steal(PyArray_FromScalar(object, nullptr)));
  if (depth_ == kDeepest) {
    const nb::object pickled = hooks_.attr("pickled")(value);
    return add(nb::handle(pickled));
  }
  ++depth_;
  add_nested(value);
  --depth_;
}

void Digest::add_nested(nb::handle value) {
  PyObject* object = value.ptr();
  if (PyDict_Check(object)) {
    add_number('d');
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr;
    while (PyDict_Next(object, &position, &key, &item)) {
      const nb::object held = nb::borrow(item);  // the hook may run code that changes the dict
      add(nb::handle(key));
      add(held);
    }
    return add_number(static_cast<std::uint64_t>(PyDict_Size(object)));
  }
  if (PyTuple_Check(object)) return add_items(value, PyTuple_GET_SIZE(object));
  if (PyList_Check(object)) return add_items(nb::steal(PyList_AsTuple(object)), PyList_Size(object));
  if (PyAnySet_Check(object)) return add_set(value);
  const nb::object pickled = hooks_.attr("pickled")(value);
  add(nb::handle(pickled));
}

void Digest::add_array(nb::handle value) {
  PyArrayObject* array = as_array(value);
  const PyArray_Descr* descr = PyArray_DESCR(array);
  add_number(static_cast<std::uint64_t>(static_cast<unsigned char>(descr->kind)));
  for (int i = 0; i < PyArray_NDIM(array); ++i) add_number(static_cast<std::uint64_t>(PyArray_DIM(array, i)));
  if (descr->kind == 'O' || descr->kind == 'V')
    return add(nb::handle(value.attr("tolist")()));  // padding has any bytes
  const nb::object whole = nb::steal(PyArray_FROM_OF(value.ptr(), NPY_ARRAY_C_CONTIGUOUS));
  if (!whole.is_valid()) nb::raise_python_error();
  add(PyArray_DATA(as_array(whole)), static_cast<std::size_t>(PyArray_NBYTES(as_array(whole))));
}

void Digest::add_items(nb::handle items, Py_ssize_t count) {
  add_number('t');
  add_number(static_cast<std::uint64_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) add(nb::handle(PyTuple_GET_ITEM(items.ptr(), i)));
}

void Digest::add_set(nb::handle items) {
  std::uint64_t sum = 0;
  for (nb::handle item : items) {
    Digest one(hooks_);
    one.add(item);
    sum += one.value();
  }
  add_number('s');
  add_number(sum);
}

}  // namespace remuda
