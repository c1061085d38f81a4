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
  // of an action, or one pair for each. For other columns of a discrete space: empty, so that nothing is converted
  // here.
  ActionColumn(Column column, std::optional<std::vector<Bounds>> bounds)
      : column_(std::move(column)), bounds_(std::move(bounds)) {}

  const Column& column() const { return column_; }

  // Returns `value` as an array of the column's dtype, shape and C order, with a row for each of `count` envs and all
  // numbers within the bounds: itself if it is such an array, else a copy if NumPy casts it without loss. Null does not
  // mean that the value is wrong: `SpaceCodec` in Python has the full rules, and the errors.
  nb::object convert(nb::handle value, std::uint32_t count) const;

  // Copies the rows of `array` to the slots of the part. `array` must have the column's dtype and shape, and C order.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const;

 private:
  nb::object cast(nb::handle value, std::uint32_t count) const;
  bool are_choices(nb::handle array) const;

  Column column_;
  std::optional<std::vector<Bounds>> bounds_;
};

}  // namespace remuda
