// Copies the actions that callers pass into the rows from which workers read actions.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pool/slots/part.hpp"
#include "pool/slots/slots.hpp"
#include "shm/columns.hpp"

namespace remuda {

// One column of the actions, with the bounds of its space if the space is discrete.
class ActionColumn {
 public:
  using Bounds = std::pair<std::int64_t, std::int64_t>;  // the least and the greatest allowed number

  // `bounds` depends on the column's space. It is None if every number is an action. For a discrete space with a column
  // of int64, it has one pair for all numbers of an action, or one pair for each number. For other columns of a
  // discrete space it is empty, so that `convert` always returns null.
  ActionColumn(Column column, std::optional<std::vector<Bounds>> bounds)
      : column_(std::move(column)), bounds_(std::move(bounds)) {}

  const Column& column() const { return column_; }

  // Returns an array of the column's dtype, shape and C order, with a row for each of `count` envs, and all numbers
  // within the bounds. The array is `value` itself, or a copy that was cast. Returns null if neither is possible; then
  // `SpaceCodec` in Python applies the full rules, and raises the errors.
  nb::object convert(nb::handle value, std::uint32_t count) const;

  // Writes row i of `array` to the row of the next action of slot `targets[i]`. `array` must have the column's dtype
  // and shape, and C order.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const;

 private:
  nb::object cast(nb::handle value, std::uint32_t count) const;
  bool are_choices(nb::handle array) const;

  Column column_;
  std::optional<std::vector<Bounds>> bounds_;
};

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
  // The Python function `convert`.
  nb::object& converter() { return convert_; }

 private:
  bool convert_each(Leaves& leaves, std::uint32_t count) const;

  std::vector<ActionColumn> columns_;
  Nest nest_;
  nb::object convert_;
};

}  // namespace remuda
