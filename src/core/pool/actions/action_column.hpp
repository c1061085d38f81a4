// One column of the actions, and the bounds of a discrete space.
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
  using Bounds = std::pair<std::int64_t, std::int64_t>;  // inclusive

  // `bounds`: None if every number is an action. For a discrete space with a column of int64: one pair for all numbers
  // of an action, or one pair for each. For other columns of a discrete space: empty, so that nothing `fits` and a
  // conversion checks the numbers.
  ActionColumn(Column column, std::optional<std::vector<Bounds>> bounds)
      : column_(std::move(column)), bounds_(std::move(bounds)) {}

  const Column& column() const { return column_; }

  // Returns whether `value` can be copied as it is: an array of the column's dtype, shape and C order, with a row for
  // each of `count` envs and all numbers within the bounds. False does not mean that the value is wrong.
  bool fits(nb::handle value, std::uint32_t count) const;

  // Copies the rows of `array` to the slots of the part. `array` must have the column's dtype and shape, and C order.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const;

 private:
  bool are_choices(const std::byte* numbers, std::size_t count) const;

  Column column_;
  std::optional<std::vector<Bounds>> bounds_;
};

}  // namespace remuda
