// One column of the actions: takes what callers pass for it, as long as nothing is lost by that.
#pragma once

#include <variant>
#include <vector>

#include "pool/actions/whole_numbers.hpp"
#include "pool/slots/part.hpp"
#include "pool/slots/slots.hpp"
#include "shm/columns.hpp"

namespace remuda {

class ActionColumn {
 public:
  // `bounds`: of a discrete space, pairs of inclusive bounds: one for all numbers of an action, or one for each; else
  // an empty sequence.
  ActionColumn(Column column, nb::sequence bounds);

  const Column& column() const { return column_; }

  // `value` as an array of the column's dtype in C order, with a row for each of `count` envs: itself, if it is one.
  // Null where it does not fit: another number or shape (axes of length 1 do not count), values that would change, or
  // choices out of bounds.  Raises what is no error of the value, as an interrupt is.
  nb::object convert(nb::handle value, std::uint32_t count) const;

  // `array`: as `convert` returns it, with a row for each of the slots of the part.
  void write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part, const Slots& slots) const;

 private:
  nb::object cast(nb::handle value, std::uint32_t count) const;
  nb::object reshape(nb::object array, std::uint32_t count) const;
  bool keeps_values(PyArrayObject* array) const;
  bool has_choices(PyArrayObject* array) const;
  template <class Wide, class Number>
  bool all_held(PyArrayObject* array, int type) const;

  Column column_;
  // Of a discrete space with integers that have a sign, or have none.
  std::variant<std::monostate, Choices<std::int64_t>, Choices<std::uint64_t>> choices_;
};

}  // namespace remuda
