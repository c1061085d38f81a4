// Columns of the pool's caller: what functions of his make of an env after each of its resets and steps.
//
// The worker's thread alone uses them.  Where there are none, nothing of this is touched in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shm/columns.hpp"

namespace remuda {

class ComputedColumns {
 public:
  // `functions`: one for each of `columns`; none where the hooks write them, as they do for vector envs.
  ComputedColumns(std::vector<nb::object> functions, std::vector<Column> columns)
      : functions_(std::move(functions)), columns_(std::move(columns)) {}

  bool any() const { return !columns_.empty(); }
  const std::vector<Column>& columns() const { return columns_; }

  // Calls each function with the env and writes what it returns.  `hooks` see to what does not fit as it is, and say
  // whose exception it was that a function raised.
  void write(nb::handle env, std::uint32_t row, const nb::object& hooks) const;

  // Keeps what a row has, and writes it into another one.
  void keep(std::uint32_t row, std::vector<std::byte>& kept) const;
  void write_kept(const std::vector<std::byte>& kept, std::uint32_t row) const;

  // For Python's garbage collector.
  int visit(visitproc visit, void* arg) const {
    for (const nb::object& one : functions_) Py_VISIT(one.ptr());
    return 0;
  }
  void clear() { functions_.clear(); }

 private:
  nb::object call(std::size_t index, nb::handle env, const nb::object& hooks) const;

  std::vector<nb::object> functions_;
  std::vector<Column> columns_;
};

}  // namespace remuda
