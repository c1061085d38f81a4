// One column of the actions, and the choices of a discrete space that it takes.
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

  // `bounds`: of a discrete space, one pair for all numbers of an action, or one for each, if the column is of int64;
  // an empty vector if it is not: then nothing `fits`, because only a conversion checks the numbers.  None if every
  // number is an action.
  ActionColumn(Column column, std::optional<std::vector<Bounds>> bounds)
      : column_(std::move(column)), bounds_(std::move(bounds)) {}

  const Column& column() const { return column_; }

  // Whether `value` is an array that can be copied as it is, with a row for each of `count` envs: of the column's
  // dtype, shape and C order, and all choices within their bounds.  False does not mean that the value is wrong.
  bool fits(nb::handle value, std::uint32_t count) const;

  // `array`: of the column's dtype and shape and in C order, with a row for each of the slots of the part.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const;

 private:
  bool are_choices(const std::byte* numbers, std::size_t count) const;

  Column column_;
  std::optional<std::vector<Bounds>> bounds_;
};

}  // namespace remuda
