// Takes the actions of envs from what callers pass into the rows that workers read them from.
#pragma once

#include <optional>
#include <vector>

#include "pool/actions/action_column.hpp"

namespace remuda {

class Actions {
 public:
  using Leaves = std::vector<nb::object>;  // an array for each column

  // `nest`: how an action is made of the columns, and of nothing else.
  Actions(std::vector<ActionColumn> columns, nb::handle nest) : columns_(std::move(columns)), nest_(nest) {}

  // The leaves of a batch of actions, one for each of so many envs; none where they do not fit.  Nothing is written:
  // this may run code of the caller's, who passes arrays of his own kind.
  std::optional<Leaves> take_apart(nb::handle actions, std::uint32_t count) const;
  void write(const Leaves& leaves, const std::vector<std::uint32_t>& targets, const Part& part,
             const Slots& slots) const;

  // Copies the actions of these rows into as many others, which may be among them.
  void move(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) const;

  // Where the actions lie, a row for each slot and those of rollouts.
  std::vector<Column> columns() const;

 private:
  std::vector<ActionColumn> columns_;
  Nest nest_;
};

}  // namespace remuda
