// Takes actions from arrays into the rows that workers read them from.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "pool/part.hpp"
#include "pool/slots.hpp"
#include "shm/columns.hpp"

namespace remuda {

class Actions {
 public:
  explicit Actions(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Every number of the only column is to be in low..high.
  void set_choices(npy_int64 low, npy_int64 high) { choices_ = {low, high}; }
  // Whether `array` can be written as it is: it has a row for each of so many slots and all that the only column needs.
  bool fits(nb::handle array, std::size_t count) const;
  // `array`: a contiguous one of the column's dtype, with a row for each of the slots of the part.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const {
    write_column(columns_[0], array, targets, part, slots);
  }
  // The same with an array for each column; raises ValueError where one does not fit.
  void write_all(nb::list arrays, const std::vector<std::uint32_t>& targets, const Part& part,
                 const Slots& slots) const;

 private:
  static void write_column(const Column& column, nb::handle array, const std::vector<std::uint32_t>& targets,
                           const Part& part, const Slots& slots);

  std::vector<Column> columns_;
  std::optional<std::pair<npy_int64, npy_int64>> choices_;
};

}  // namespace remuda
