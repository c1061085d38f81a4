#include "worker/computed_columns.hpp"

#include <cstring>

#include "worker/env_results.hpp"

namespace remuda {

void ComputedColumns::write(nb::handle env, std::uint32_t row, const nb::object& hooks, EnvCalls& calls) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const nb::object value = call(i, env, hooks, calls);
    if (columns_[i].write(value.ptr(), row)) continue;
    // The value is a list, has another dtype, or is invalid. The slow path converts it or raises a precise error.
    const nb::object array = hooks.attr("fit_computed")(i, value);
    if (!columns_[i].write(array.ptr(), row)) throw nb::value_error("a computed value was not made to fit its column");
  }
}

nb::object ComputedColumns::call(std::size_t index, nb::handle env, const nb::object& hooks, EnvCalls& calls) const {
  try {
    return calls.run([&, it = nb::borrow(env)] { return functions_[index](it); });
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C is not an error of the function.
    hooks.attr("blame_computed")(index, value_of(error));
    throw;
  }
}

void ComputedColumns::keep(std::uint32_t row, std::vector<std::byte>& kept) const {
  kept.clear();
  for (const Column& column : columns_) kept.insert(kept.end(), column.row(row), column.row(row) + column.row_bytes());
}

void ComputedColumns::write_kept(const std::vector<std::byte>& kept, std::uint32_t row) const {
  const std::byte* from = kept.data();
  for (const Column& column : columns_) {
    std::memcpy(column.row(row), from, column.row_bytes());
    from += column.row_bytes();
  }
}

}  // namespace remuda
