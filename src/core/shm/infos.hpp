// Writes infos of numbers into columns of their own.
//
// An info is a tree: a dict of numbers, small arrays, and such dicts. Each of these numbers and arrays, a *leaf*, may
// have a column, identified by its path: the keys that lead to it. The pool gives a path a column when it first sees
// it. From then on the worker writes the value into the row and sets the column's bit in the row's mask. A value
// without a column, or with another type this time, is left over and travels pickled. A dict within an info is written
// as a whole or left over as a whole. No dict is built for an info that the caller never reads.
//
// With same-step autoreset a row holds two infos: for the end of an episode, and for the beginning of the next. The end
// uses the paths that begin with "final_info" and "final_obs", which are also its names for readers.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "shm/columns.hpp"

namespace remuda {

class InfoWriter {
 public:
  static constexpr std::size_t kMaxColumns = 64;  // the bits of the mask
  // The largest value; columns are given to paths in the order of their first appearance.
  static constexpr std::size_t kMaxColumnBytes = 128;

  InfoWriter();

  // Adds the next column, which has the next bit in the mask. `path`: a tuple of strings. `type`: the exact Python type
  // of the values that the column takes.
  void add(const nb::tuple& path, nb::object type, Column column);

  // Returns the mask of the columns written, and puts values without a column into the dict `rest`. `rest` may be null,
  // and stays null if all values have columns. `info` is a dict, which is not changed.
  std::uint64_t write(nb::handle info, std::uint32_t row, nb::object& rest);

  // Writes the info or the observation of an episode's end, all or nothing. Returns nullopt if some of it has no
  // column.
  std::optional<std::uint64_t> write_final_info(nb::handle info, std::uint32_t row);
  std::optional<std::uint64_t> write_final_obs(nb::handle obs, std::uint32_t row);

  // The columns that do not belong to the end of an episode.
  std::uint64_t columns_of_steps() const { return columns_of_steps_; }

  // Returns a list of (path, value) for leaves that could have a column, each reported once; null if the list is empty.
  nb::object take_wanted() { return std::exchange(wanted_, nb::object()); }

 private:
  struct Leaf {
    nb::object type;
    Column column;
  };
  struct Child {
    nb::object key;
    std::size_t node;
  };
  struct Node {                              // one path
    std::vector<Child> first_children = {};  // some children, found by the identity of their key
    nb::object children = {};                // dict: key -> number of the node; null: no children
    std::optional<std::size_t> leaf = {};
    bool is_wanted = false;  // the leaf was reported to the pool
  };
  using Path = std::vector<nb::handle>;

  std::size_t child(std::size_t node, PyObject* key) const;
  std::size_t add_child(std::size_t node, nb::handle key);
  std::uint64_t write_node(std::size_t node, PyObject* value, std::uint32_t row) const;
  std::uint64_t write_dict(std::size_t node, PyObject* dict, std::uint32_t row) const;
  bool write_leaf(const Leaf& leaf, PyObject* value, std::uint32_t row) const;
  std::optional<std::uint64_t> write_final(std::size_t node, nb::handle value, std::uint32_t row);
  void want_child(std::size_t node, PyObject* key, PyObject* value, Path path);
  void want(std::size_t node, PyObject* value, const Path& path);

  std::vector<Node> nodes_;
  std::vector<Leaf> leaves_;
  std::uint64_t columns_of_steps_ = 0;
  nb::object wanted_;
};

}  // namespace remuda
