// Copies the actions that callers pass into the rows from which workers read actions.
#pragma once

#include <vector>

#include "pool/actions/action_column.hpp"

namespace remuda {

class Actions {
 public:
  using Leaves = std::vector<nb::object>;  // an array for each column

  // `nest`: the structure of an action, with a leaf for each column. `convert(actions, count)`: a Python function that
  // returns a list of the leaves for anything that NumPy can convert, and raises for actions that do not fit.
  Actions(std::vector<ActionColumn> columns, nb::handle nest, nb::object convert)
      : columns_(std::move(columns)), nest_(nest), convert_(std::move(convert)) {}

  // Returns the leaves of a batch of `count` actions. If any column cannot convert its leaf, the Python function
  // `convert` makes all of the leaves. Writes no rows yet, because the conversion may run user code.
  Leaves take_apart(nb::handle actions, std::uint32_t count) const;
  void write(const Leaves& leaves, const std::vector<std::uint32_t>& targets, const Part& part,
             const Slots& slots) const;

  // Copies the actions of rows `from` to rows `to`, which may overlap.
  void move(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) const;

  // The columns of the actions, with a row for each slot and the rows of rollouts.
  std::vector<Column> columns() const;

 private:
  bool convert_each(Leaves& leaves, std::uint32_t count) const;

  std::vector<ActionColumn> columns_;
  Nest nest_;
  nb::object convert_;
};

}  // namespace remuda
