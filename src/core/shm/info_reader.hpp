// Builds the infos of a batch from columns: see infos.hpp, which fills them.
//
// What it makes are dicts of the caller's own, of values of the types that the envs gave.  It keeps no array: a batch
// brings its own, of the columns that there were when it was made.
#pragma once

#include <vector>

#include "python/numpy_api.hpp"

namespace remuda {

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
  nb::dict stack(nb::handle mask, nb::handle arrays, nb::handle finals) const;

 private:
  enum class Kind { kNumber, kScalar, kArray };
  struct Column {
    std::vector<nb::object> keys, mask_keys;  // of its path
    Kind kind;
    bool is_object;     // Gymnasium has its values in an array of objects
    bool is_final_obs;  // or of one
  };
  class Rows;

  nb::dict info_of(const Rows& rows, std::size_t row) const;
  void stack_column(nb::dict& stacked, const Rows& rows, std::size_t column, std::vector<npy_intp>& having) const;

  std::vector<Column> columns_;
  bool has_final_obs_ = false;
};

}  // namespace remuda
