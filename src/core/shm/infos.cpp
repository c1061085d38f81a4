#include "shm/infos.hpp"

#include <cstring>

#include "python/dict_items.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

namespace {

// The numbers of the first nodes. Except for the root, these nodes have the keys that Gymnasium reserves for the end of
// an episode. Values that an env stores under these keys get no columns.
enum : std::size_t { kRoot, kFinalInfo, kFinalObs, kFinalInfoMask, kFinalObsMask, kFirstOfEnv };
constexpr const char* kReserved[] = {"final_info", "final_obs", "_final_info", "_final_obs"};

constexpr std::size_t kNone = kRoot;     // The root is no node's child, so its number stands for "no child".
constexpr std::size_t kMaxNodes = 1024;  // The nodes are limited, because an env may produce new keys without end.
constexpr int kMaxDepth = 8;             // The depth of nested dicts is limited, because a dict may contain itself.
constexpr std::size_t kFewChildren = 8;  // Up to 8 children, a linear search is faster than a dict.

bool is_small_array(PyObject* value) {
  if (!PyArray_CheckExact(value)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  const int type = PyArray_TYPE(array);
  const bool is_real = PyTypeNum_ISBOOL(type) || PyTypeNum_ISINTEGER(type) || PyTypeNum_ISFLOAT(type);
  return is_real && static_cast<std::size_t>(PyArray_NBYTES(array)) <= InfoWriter::kMaxColumnBytes;
}

bool may_have_columns(PyObject* value, int depth);

bool may_have_columns(PyObject* key, PyObject* value, int depth) {
  // A key "final_obs" gets no column at any depth, because Gymnasium stores its values in an array of objects.
  return PyUnicode_CheckExact(key) && PyUnicode_CompareWithASCIIString(key, kReserved[kFinalObs - 1]) != 0 &&
         may_have_columns(value, depth);
}

bool may_have_columns(PyObject* value, int depth) {
  if (PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value)) return true;
  if (PyArray_IsScalar(value, Number) || PyArray_IsScalar(value, Bool) || is_small_array(value)) return true;
  if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) == 0 || depth == kMaxDepth) return false;
  return visit_items(value, [&](PyObject* key, PyObject* child) { return may_have_columns(key, child, depth + 1); });
}

}  // namespace

InfoWriter::InfoWriter() : nodes_(1) {
  for (const char* key : kReserved) add_child(kRoot, nb::str(key));
}

void InfoWriter::add(const nb::tuple& path, nb::object type, Column column) {
  std::size_t node = kRoot;
  for (nb::handle key : path) {
    const std::size_t known = child(node, key.ptr());
    node = known == kNone ? add_child(node, key) : known;
  }
  const bool is_of_step = child(kRoot, nb::object(path[0]).ptr()) >= kFirstOfEnv;
  if (is_of_step) columns_of_steps_ |= std::uint64_t{1} << leaves_.size();
  nodes_[node].leaf = leaves_.size();
  leaves_.push_back({std::move(type), std::move(column)});
}

std::size_t InfoWriter::child(std::size_t node, PyObject* key) const {
  for (const Child& one : nodes_[node].first_children)
    if (one.key.ptr() == key) return one.node;
  const nb::object& children = nodes_[node].children;
  if (!children.is_valid() || !PyUnicode_CheckExact(key)) return kNone;
  const nb::object number = item(children, key);
  return number.is_valid() ? PyLong_AsSize_t(number.ptr()) : kNone;
}

std::size_t InfoWriter::add_child(std::size_t node, nb::handle key) {
  const std::size_t number = nodes_.size();
  const nb::object name = interned(key);  // interned, as the literal keys in an env's source code are
  auto& few = nodes_[node].first_children;
  if (few.size() < kFewChildren) few.push_back({name, number});
  nb::object& children = nodes_[node].children;
  if (!children.is_valid()) children = nb::dict();
  if (PyDict_SetItem(children.ptr(), name.ptr(), nb::int_(number).ptr()) < 0) nb::raise_python_error();
  nodes_.emplace_back();
  return number;
}

std::uint64_t InfoWriter::write(nb::handle info, std::uint32_t row, nb::object& rest) {
  std::uint64_t mask = 0;
  visit_items(info, [&](PyObject* key, PyObject* value) {
    const std::size_t node = child(kRoot, key);
    const std::uint64_t written = node >= kFirstOfEnv ? write_node(node, value, row) : 0;
    mask |= written;
    if (written != 0) return true;
    if (!rest.is_valid()) rest = nb::dict();
    if (PyDict_SetItem(rest.ptr(), key, value) < 0) nb::raise_python_error();
    const bool is_reserved = node != kNone && node < kFirstOfEnv;
    if (!is_reserved && may_have_columns(key, value, 0)) want_child(kRoot, key, value, {});
    return true;
  });
  return mask;
}

std::optional<std::uint64_t> InfoWriter::write_final_info(nb::handle info, std::uint32_t row) {
  return PyDict_GET_SIZE(info.ptr()) == 0 ? std::optional(std::uint64_t{0}) : write_final(kFinalInfo, info, row);
}

std::optional<std::uint64_t> InfoWriter::write_final_obs(nb::handle obs, std::uint32_t row) {
  return write_final(kFinalObs, obs, row);
}

std::optional<std::uint64_t> InfoWriter::write_final(std::size_t node, nb::handle value, std::uint32_t row) {
  const std::uint64_t written = write_node(node, value.ptr(), row);
  if (written != 0) return written;
  if (may_have_columns(value.ptr(), 0)) {
    const nb::str name(kReserved[node - 1]);
    want(node, value.ptr(), {name});
  }
  return std::nullopt;
}

// Writes a value into the columns at or below a node. Returns the mask of these columns, or 0 if any leaf of the value
// has no column.
std::uint64_t InfoWriter::write_node(std::size_t node, PyObject* value, std::uint32_t row) const {
  if (PyDict_CheckExact(value)) return write_dict(node, value, row);
  const std::optional<std::size_t>& leaf = nodes_[node].leaf;
  return leaf && write_leaf(leaves_[*leaf], value, row) ? std::uint64_t{1} << *leaf : 0;
}

std::uint64_t InfoWriter::write_dict(std::size_t node, PyObject* dict, std::uint32_t row) const {
  std::uint64_t mask = 0;
  const bool is_written = visit_items(dict, [&](PyObject* key, PyObject* value) {
    const std::size_t one = child(node, key);
    const std::uint64_t written = one == kNone ? 0 : write_node(one, value, row);
    mask |= written;
    return written != 0;
  });
  // Columns that were already written need no undoing: without their bits in the mask, no reader uses them.
  return is_written ? mask : 0;
}

bool InfoWriter::write_leaf(const Leaf& leaf, PyObject* value, std::uint32_t row) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != leaf.type.ptr()) return false;
  if (PyFloat_CheckExact(value)) {
    double number = PyFloat_AS_DOUBLE(value);
    std::memcpy(leaf.column.row(row), &number, sizeof number);
    return true;
  }
  if (PyBool_Check(value)) {
    *leaf.column.row(row) = std::byte{value == Py_True};
    return true;
  }
  return leaf.column.write(value, row);
}

void InfoWriter::want_child(std::size_t node, PyObject* key, PyObject* value, Path path) {
  std::size_t one = child(node, key);
  if (one == kNone && nodes_.size() == kMaxNodes) return;
  if (one == kNone) one = add_child(node, key);
  path.emplace_back(key);
  want(one, value, path);
}

void InfoWriter::want(std::size_t node, PyObject* value, const Path& path) {
  if (PyDict_CheckExact(value)) {
    visit_items(value, [&](PyObject* key, PyObject* child) {
      want_child(node, key, child, path);
      return true;
    });
    return;
  }
  if (nodes_[node].is_wanted || nodes_[node].leaf) return;
  nodes_[node].is_wanted = true;
  nb::list keys;
  for (nb::handle key : path) keys.append(key);
  if (!wanted_.is_valid()) wanted_ = nb::list();
  nb::borrow<nb::list>(wanted_).append(nb::make_tuple(nb::tuple(keys), nb::handle(value)));
}

}  // namespace remuda
