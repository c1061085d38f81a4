// Copies the actions that callers pass into the rows that workers read them from.
#pragma once

#include <vector>

#include "pool/actions/action_column.hpp"

namespace remuda {

class Actions {
 public:
  using Leaves = std::vector<nb::object>;  // an array for each column

  // `nest`: how an action is made of the columns.  `convert(actions, count)`: a function in Python that makes a list of
  // the leaves from anything that NumPy makes arrays from, and raises for actions that do not fit.
  Actions(std::vector<ActionColumn> columns, nb::handle nest, nb::object convert)
      : columns_(std::move(columns)), nest_(nest), convert_(std::move(convert)) {}

  // Returns the leaves of a batch of `count` actions: its own arrays where these fit as they are, else those that
  // `convert` makes.  Nothing is written yet, because conversion may run code of the caller's.
  Leaves take_apart(nb::handle actions, std::uint32_t count) const;
  void write(const Leaves& leaves, const std::vector<std::uint32_t>& targets, const Part& part,
             const Slots& slots) const;

  // Copies the actions of these rows into as many others, which may be among them.
  void move(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) const;

  // The columns of the actions, with a row for each slot and those of rollouts.
  std::vector<Column> columns() const;

 private:
  bool fit(const Leaves& leaves, std::uint32_t count) const;

  std::vector<ActionColumn> columns_;
  Nest nest_;
  nb::object convert_;
};

}  // namespace remuda
