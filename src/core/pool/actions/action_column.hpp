// One column of the actions, with the bounds of its space if the space is discrete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pool/slots/part.hpp"
#include "pool/slots/slots.hpp"
#include "shm/columns.hpp"

namespace remuda {

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

}  // namespace remuda
