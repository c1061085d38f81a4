// Writes infos of numbers into columns of their own.
//
// An info is a tree: a dict of numbers, small arrays, and dicts of such.  Each of these numbers and arrays, a *leaf*,
// may have a column, known by its path, the keys that lead to it.  The pool gives a path a column the first time it
// sees it; from then on the worker writes the value into the row and sets the column's bit in the row's mask.  What has
// no column (or, this time, another type) is left over and travels pickled.  A dict within an info is written as a
// whole or left over as a whole.  Nobody builds a dict for an info that nobody reads.
//
// With same-step autoreset a row tells two things, the end of an episode and the beginning of the next.  The end has
// the paths that begin with "final_info" and "final_obs", which is what they are called when they are read.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "shm/columns.hpp"

namespace remuda {

class InfoWriter {
 public:
  static constexpr std::size_t kMaxColumns = 64;       // the bits of the mask
  static constexpr std::size_t kMaxColumnBytes = 128;  // of one value: room is dealt out to whoever comes first

  InfoWriter();

  // The next column, whose bit is the next one too.  `path`: a tuple of strings; `type`: the exact Python type of the
  // values that it takes.
  void add(const nb::tuple& path, nb::object type, Column column);

  // Returns the mask of the columns written, and puts what has none into the dict `rest`, which may be null before and
  // stays so where there is nothing.  `info` is a dict; it is not changed.
  std::uint64_t write(nb::handle info, std::uint32_t row, nb::object& rest);

  // The same for the end of an episode, all or nothing.  nullopt: it has no columns.
  std::optional<std::uint64_t> write_final_info(nb::handle info, std::uint32_t row);
  std::optional<std::uint64_t> write_final_obs(nb::handle obs, std::uint32_t row);

  // The columns that tell nothing of an end.
  std::uint64_t columns_of_steps() const { return columns_of_steps_; }

  // A list of (path, value) of leaves that might have a column, each of them told once; null: there are none.
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
  struct Node {                              // a path
    std::vector<Child> first_children = {};  // some of them, to be found by the very object that is their key
    nb::object children = {};                // dict: key -> number of the node; null: there are none
    std::optional<std::size_t> leaf = {};
    bool is_wanted = false;  // the pool was told of it
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
