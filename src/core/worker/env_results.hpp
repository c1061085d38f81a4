// Checks the values that envs return. Envs are third-party code, so any value may be invalid.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "python/arrays.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

namespace nb = nanobind;

[[noreturn]] inline void reject(const std::string& expected, nb::handle got, const std::string& remedy = "") {
  auto text = nb::cast<std::string>(nb::repr(got));
  if (text.size() > 200) {
    std::size_t end = 200;
    // Moves the cut to the beginning of a UTF-8 character.
    while ((text[end] & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  throw nb::type_error(("expected " + expected + ", got " + text + remedy).c_str());
}

// Returns the number in an array of shape (1,), which many envs return as their reward; null for any other object.
inline nb::object only_number(nb::handle value) {
  if (!PyArray_Check(value.ptr()) || PyArray_NDIM(as_array(value)) != 1 || PyArray_SIZE(as_array(value)) != 1)
    return {};
  return nb::steal(PyArray_GETITEM(as_array(value), PyArray_BYTES(as_array(value))));
}

inline double number(nb::handle reward) {
  if (PyFloat_Check(reward.ptr())) return PyFloat_AS_DOUBLE(reward.ptr());
  const nb::object only = only_number(reward);
  double value = PyFloat_AsDouble(only.is_valid() ? only.ptr() : reward.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    const bool is_vector = PyArray_Check(reward.ptr()) && PyArray_NDIM(as_array(reward)) == 1;
    reject(is_vector ? "a number as the reward, or a `reward_space` of the env for vectors" : "a number as the reward",
           reward);
  }
  return value;
}

// Copies a reward that is a vector of `width` numbers. `target` has place for them.
inline void copy_numbers(nb::handle reward, double* target, std::size_t width) {
  const auto array = nb::steal(PyArray_FROM_OTF(reward.ptr(), NPY_DOUBLE, NPY_ARRAY_IN_ARRAY));
  if (!array.is_valid()) PyErr_Clear();
  if (!array.is_valid() || PyArray_NDIM(as_array(array)) != 1 ||
      PyArray_SIZE(as_array(array)) != static_cast<npy_intp>(width)) {
    const bool is_number = array.is_valid() && PyArray_NDIM(as_array(array)) == 0;
    reject("a reward of shape (" + std::to_string(width) + ",), like the env's `reward_space`", reward,
           is_number ? "; a wrapper that makes numbers of vectors needs a `reward_space` of shape ()" : "");
  }
  std::memcpy(target, PyArray_DATA(as_array(array)), width * sizeof(double));
}

inline bool truth(nb::handle flag, const char* name) {
  int value = PyObject_IsTrue(flag.ptr());
  if (value < 0) {
    PyErr_Clear();
    reject(std::string("a bool as ") + name, flag);
  }
  return value != 0;
}

inline nb::handle item(const nb::tuple& tuple, Py_ssize_t i) { return PyTuple_GET_ITEM(tuple.ptr(), i); }

// Returns the exception of an error, with its traceback.
inline nb::handle value_of(const nb::python_error& error) {
  if (error.traceback().is_valid()) PyException_SetTraceback(error.value().ptr(), error.traceback().ptr());
  return error.value();
}

// Calls `code()`. Returns the Python exception that it raised, or that an error of the core stands for; else nullopt.
template <class Code>
std::optional<nb::python_error> error_of(Code code) {
  try {
    code();
    return std::nullopt;
  } catch (nb::python_error& error) {
    return error;
  } catch (nb::builtin_exception& error) {
    PyErr_SetString(error.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  return nb::python_error();
}

// Returns the results of an env's method as a tuple of `size` elements. A list is accepted, too, because callers that
// unpack the results would accept it.
inline nb::tuple results_of(nb::handle outcome, Py_ssize_t size, const char* expected) {
  nb::object copy;
  if (PyList_Check(outcome.ptr())) copy = nb::steal(PyList_AsTuple(outcome.ptr()));
  const nb::handle tuple = copy.is_valid() ? copy : outcome;
  if (!PyTuple_Check(tuple.ptr()) || PyTuple_GET_SIZE(tuple.ptr()) != size) reject(expected, outcome);
  return nb::borrow<nb::tuple>(tuple);
}

inline void check_info(nb::handle info) {
  if (!PyDict_Check(info.ptr())) reject("a dict as the info", info);
}

}  // namespace remuda
