// Builds the infos of a batch from columns, which an InfoWriter (infos.hpp) fills.
//
// The caller owns the returned dicts, and their values have the types that the envs returned. The reader keeps no array
// of a batch. A batch passes its own arrays, for the columns that existed when the batch was made. Arrays in
// Gymnasium's format are reused once no caller holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "python/arrays.hpp"
#include "shm/columns.hpp"

namespace remuda {

// The location of the info columns of a batch, with a row for each env. It owns nothing and is valid for one call.
struct InfoRows {
  struct Leaf {
    PyArray_Descr* dtype;
    const npy_intp* shape;  // the shape of a row
    int axes;
    const std::byte* first;
    std::size_t row_bytes;

    const std::byte* row(std::size_t row) const { return first + row * row_bytes; }
  };

  InfoRows(const std::uint64_t* masks, std::size_t size, std::size_t columns) : masks_(masks), size_(size) {
    leaves_.reserve(columns);
  }
  // Reads the rows from arrays. `mask`: (n,) uint64, see `InfoReader`. `arrays`: a list of (n, *shape) arrays, or None
  // if no row has a value in any column. Arrays beyond the first `most` are left out.
  InfoRows(nb::handle mask, nb::handle arrays, std::size_t most);

  // Adds the next column, which has the next bit in the mask.
  void add(const Column& column, std::uint32_t first_row);
  void add(nb::handle array);

  std::size_t size() const { return size_; }
  std::size_t num_columns() const { return leaves_.size(); }
  const Leaf& operator[](std::size_t column) const { return leaves_[column]; }
  // Masks out unknown bits, because a worker that has corrupted its memory may have set any bit.
  std::uint64_t mask(std::size_t row) const { return masks_[row] & known_; }

 private:
  void add(const Leaf& leaf) {
    known_ |= std::uint64_t{1} << leaves_.size();
    leaves_.push_back(leaf);
  }

  const std::uint64_t* masks_;
  std::size_t size_;
  std::vector<Leaf> leaves_;
  std::uint64_t known_ = 0;  // the bits of the columns that were added
};

class InfoReader {
 public:
  // Adds the next column, which has the next bit in the mask. `path`: a tuple of strings, the keys that lead to its
  // values. `type`: the Python type of the values: a Python number, a NumPy scalar, or ndarray.
  void add(const nb::tuple& path, nb::handle type);
  std::size_t num_columns() const { return columns_.size(); }
  // Whether any column holds terminal observations.
  bool has_final_obs() const { return has_final_obs_; }

  // In the next functions, `mask` is an array (n,) of uint64 with a bit for each column that a row has filled. `arrays`
  // is a list of (n, *shape) arrays of the first columns, or None if no row has a value in any column.

  // `infos` returns a dict for each row, `info` the dict of one row.
  nb::list infos(nb::handle mask, nb::handle arrays) const;
  nb::dict info(nb::handle mask, nb::handle arrays, std::size_t row) const;
  // Returns one dict for all rows in the format of Gymnasium's vector envs. `finals` maps rows to terminal
  // observations, which `stack` adds without reading columns; None if no row has one.
  nb::dict stack(nb::handle mask, nb::handle arrays, nb::handle finals);

  // The next two functions read rows anywhere in memory. `rows` must not have more columns than this reader.
  nb::list infos(const InfoRows& rows) const;
  nb::dict stack(const InfoRows& rows, nb::handle finals);

 private:
  enum class Kind { kNumber, kScalar, kArray };
  struct Column {
    std::vector<nb::object> keys;  // the keys of its path
    Kind kind;
    bool is_object;  // Gymnasium stores values of this type in an array of objects.
  };
  struct Node;
  struct Level {  // one level of the nested dict in Gymnasium's format
    std::vector<Node> nodes;
    std::uint64_t columns = 0;  // The bits of the columns at or below the nodes.
    // All keys and mask keys of the level, in order. Copying this dict is faster than adding the keys one by one.
    nb::dict all_keys = {};
  };
  struct Node {  // one key of a level, and the level below the key
    nb::object key, mask_key;
    std::uint64_t columns = 0;               // The bits of the columns at or below the node.
    std::optional<std::size_t> column = {};  // The node's own column; nullopt if its key leads to a dict.
    Level below = {};
    ReusedArrays values = {}, masks = {};
  };

  // `arrays` may have columns that were not added to this reader.
  InfoRows rows_of(nb::handle mask, nb::handle arrays) const { return {mask, arrays, columns_.size()}; }
  static nb::object value_of(Kind kind, const InfoRows::Leaf& leaf, std::size_t row);
  nb::dict info_of(const InfoRows& rows, std::size_t row) const;
  void add_to_tree(std::size_t column);
  nb::dict stack_level(Level& level, const InfoRows& rows, std::uint64_t there);
  void add_finals(nb::dict& stacked, const nb::dict& finals, npy_intp n);
  nb::object stack_column(const InfoRows& rows, std::size_t column, ReusedArrays& values) const;
  nb::object stack_objects(const InfoRows& rows, std::size_t column) const;

  std::vector<Column> columns_;
  Level tree_;  // the keys of all columns except terminal observations
  ReusedArrays final_info_masks_, final_obs_masks_;
  bool has_final_obs_ = false;
};

}  // namespace remuda
