// Builds the infos of a batch from columns: see infos.hpp, which fills them.
//
// What it makes are dicts of the caller's own, of values of the types that the envs gave.  It keeps no array of a
// batch, which brings its own, of the columns that there were when it was made.  Arrays in Gymnasium's format it uses
// again once nobody holds them any more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "python/reused_arrays.hpp"
#include "shm/columns.hpp"

namespace remuda {

// Where the info columns of a batch lie, a row for each env.  It keeps nothing: it is made for one look.
struct InfoRows {
  struct Leaf {
    PyArray_Descr* dtype;
    const npy_intp* shape;  // of a row
    int axes;
    const std::byte* first;
    std::size_t row_bytes;

    const std::byte* row(std::size_t row) const { return first + row * row_bytes; }
  };

  InfoRows(const std::uint64_t* masks, std::size_t size, std::size_t columns) : masks_(masks), size_(size) {
    leaves_.reserve(columns);
  }
  // Of arrays: `mask` (n,) uint64; `arrays`: a list of (n, *shape) arrays, or None where no row has any.
  InfoRows(nb::handle mask, nb::handle arrays);

  // The next column.
  void add(const Column& column, std::uint32_t first_row);
  void add(nb::handle array);

  std::size_t size() const { return size_; }
  std::size_t num_columns() const { return leaves_.size(); }
  const Leaf& operator[](std::size_t column) const { return leaves_[column]; }
  // A worker that ran wild may have set any bit.
  std::uint64_t mask(std::size_t row) const { return masks_[row] & known_; }

 private:
  void add(const Leaf& leaf) {
    known_ |= std::uint64_t{1} << leaves_.size();
    leaves_.push_back(leaf);
  }

  const std::uint64_t* masks_;
  std::size_t size_;
  std::vector<Leaf> leaves_;
  std::uint64_t known_ = 0;  // the bits of these columns
};

class InfoReader {
 public:
  // The next column, whose bit in the mask is the next one too.  `path`: a tuple of strings, the keys that lead to its
  // values; `type`: theirs, a Python number's, a NumPy scalar's, or ndarray.
  void add(const nb::tuple& path, nb::handle type);
  std::size_t num_columns() const { return columns_.size(); }
  // Whether any column is of terminal observations.
  bool has_final_obs() const { return has_final_obs_; }

  // `mask`: (n,) uint64, a bit for each column that a row has filled.  `arrays`: a list of (n, *shape) arrays of the
  // first columns; None where no row has any.

  // A dict for each row.
  nb::list infos(nb::handle mask, nb::handle arrays) const;
  nb::dict info(nb::handle mask, nb::handle arrays, std::size_t row) const;
  // One for all in the format of Gymnasium's vector envs.  `finals`: row -> terminal observation, of those that have
  // one, which no column is asked for here; None: there are none.
  nb::dict stack(nb::handle mask, nb::handle arrays, nb::handle finals);

  // The same of rows wherever they lie, which have no more columns than were added here.
  nb::list infos(const InfoRows& rows) const;
  nb::dict stack(const InfoRows& rows, nb::handle finals);

 private:
  enum class Kind { kNumber, kScalar, kArray };
  struct Column {
    std::vector<nb::object> keys;  // of its path
    Kind kind;
    bool is_object;  // Gymnasium has its values in an array of objects
  };
  struct Node;
  struct Level {  // the keys of a dict in Gymnasium's format
    std::vector<Node> nodes;
    std::uint64_t columns = 0;  // at or below them, by bit
    nb::dict all_keys = {};     // theirs and their masks', in their order: copying it is faster than adding them
  };
  struct Node {  // a key, and what is below it
    nb::object key, mask_key;
    std::uint64_t columns = 0;               // at or below it, by bit
    std::optional<std::size_t> column = {};  // its own; else it leads to a dict
    Level below = {};
    ReusedArrays values = {}, masks = {};
  };

  InfoRows rows_of(nb::handle mask, nb::handle arrays) const;
  static nb::object value_of(Kind kind, const InfoRows::Leaf& leaf, std::size_t row);
  nb::dict info_of(const InfoRows& rows, std::size_t row) const;
  void add_to_tree(std::size_t column);
  nb::dict stack_level(Level& level, const InfoRows& rows, std::uint64_t there);
  nb::object stack_value(Node& node, const InfoRows& rows, std::uint64_t there);
  void add_finals(nb::dict& stacked, const nb::dict& finals, npy_intp n);
  nb::object stack_column(const InfoRows& rows, std::size_t column, ReusedArrays& values) const;
  nb::object stack_objects(const InfoRows& rows, std::size_t column) const;

  std::vector<Column> columns_;
  Level tree_;  // but for terminal observations
  ReusedArrays final_info_masks_, final_obs_masks_;
  bool has_final_obs_ = false;
};

}  // namespace remuda
