// Writes the numbers and small arrays in infos into columns of their own.
//
// An info is a tree: a dict of numbers, small arrays, and such dicts. Each of these numbers and arrays, a *leaf*, may
// have a column. Its path identifies it: the keys that lead to it. When the pool first sees a path, it gives the path a
// column. From then on the worker writes the value into the row and sets the column's bit in the row's mask. A value
// that has no column, or not the type of its column, travels pickled. So does a dict within an info if any of its
// leaves has to. An info that the caller never reads is never built as a dict.
//
// With same-step autoreset a row holds two infos: one for the end of an episode, and one for the beginning of the next.
// The paths of the first begin with "final_info" and "final_obs", the keys under which the caller finds it.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "shm/columns.hpp"

namespace remuda {

class InfoWriter {
 public:
  static constexpr std::size_t kMaxColumns = 64;  // The mask has one bit for each column.
  // The size of the largest value that may have a column.
  static constexpr std::size_t kMaxColumnBytes = 128;

  InfoWriter();

  // Adds the next column, which has the next bit in the mask. `path`: a tuple of strings, the keys that lead to the
  // value. `type`: the exact Python type of the values that the column takes.
  void add(const nb::tuple& path, nb::object type, Column column);

  // Writes the values of the dict `info` that have columns, and returns the mask of these columns. Puts the other
  // values into the dict `rest`, which may be null, and stays null if all values have columns.
  std::uint64_t write(nb::handle info, std::uint32_t row, nb::object& rest);

  // These two write the info or the observation of an episode's end into columns, all or nothing. They return the mask
  // of these columns, or nullopt if some value has no column.
  std::optional<std::uint64_t> write_final_info(nb::handle info, std::uint32_t row);
  std::optional<std::uint64_t> write_final_obs(nb::handle obs, std::uint32_t row);

  // The mask of all columns except those for the end of an episode.
  std::uint64_t columns_of_steps() const { return columns_of_steps_; }

  // Returns a list of (path, value) for the leaves without a column that could have one; null if there are none. Each
  // leaf is returned once.
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
  struct Node {  // One path: a node in the tree of keys.
    // The first children. They are searched by the identity of the key, which is faster than the dict `children`.
    std::vector<Child> first_children = {};
    nb::object children = {};  // All children: a dict from keys to node numbers; null if there are none.
    std::optional<std::size_t> leaf = {};
    bool is_wanted = false;  // whether the leaf was reported to the pool
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
