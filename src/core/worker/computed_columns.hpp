// The user's computed columns: values that the user's functions compute from an env after each reset and step.
//
// Only the worker's thread uses this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shm/columns.hpp"
#include "worker/env_calls.hpp"

namespace remuda {

class ComputedColumns {
 public:
  // `functions`: one function for each of `columns`; empty if the hooks write the columns, as they do for vector envs.
  ComputedColumns(std::vector<nb::object> functions, std::vector<Column> columns)
      : functions_(std::move(functions)), columns_(std::move(columns)) {}

  bool any() const { return !columns_.empty(); }
  const std::vector<Column>& columns() const { return columns_; }

  // Calls each function with the env and writes its result. The `hooks` convert a result that does not fit its column.
  // If a function raises, they raise an error that names it.
  void write(nb::handle env, std::uint32_t row, const nb::object& hooks, EnvCalls& calls) const;

  // `keep` copies the values of a row to `kept`, and `write_kept` writes them to another row.
  void keep(std::uint32_t row, std::vector<std::byte>& kept) const;
  void write_kept(const std::vector<std::byte>& kept, std::uint32_t row) const;

  // `visit` and `clear` serve Python's garbage collector.
  int visit(visitproc visit, void* arg) const {
    for (const nb::object& one : functions_) Py_VISIT(one.ptr());
    return 0;
  }
  void clear() { functions_.clear(); }

 private:
  nb::object call(std::size_t index, nb::handle env, const nb::object& hooks, EnvCalls& calls) const;

  std::vector<nb::object> functions_;
  std::vector<Column> columns_;
};

}  // namespace remuda
