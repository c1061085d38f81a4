// Writes numeric info keys into columns of their own.
//
// The pool gives a key a column the first time it sees it; from then on the worker writes the value
// into the row and sets the key's bit in the row's mask.  What has no column (or, this time, another
// type) is left over and travels pickled.  Nobody builds a dict for an info that nobody reads.
#pragma once

#include <vector>

#include "shm/columns.hpp"

namespace remuda {

class InfoWriter {
 public:
  static constexpr std::size_t kMaxColumns = 64;  // the bits of the mask

  // What of an info dict has no column: both are null objects when there is nothing.
  struct Rest {
    nb::object info;      // dict
    nb::object new_keys;  // list of keys whose values might have a column, told once each
  };

  // `type`: the exact Python type of the values that the column takes.
  void add(nb::object key, nb::object type, Column column);

  // Returns the mask of the columns written.  `info` is a dict; it is not changed.
  std::uint64_t write(nb::handle info, std::uint32_t row, Rest& rest);

 private:
  struct Entry {
    nb::object type;
    Column column;
  };
  bool write_value(const Entry& entry, PyObject* value, std::uint32_t row) const;
  void leave_over(PyObject* key, PyObject* value, Rest& rest);

  nb::dict index_;  // key -> position in entries_
  std::vector<Entry> entries_;
  nb::set asked_;  // keys already reported as new
};

}  // namespace remuda
