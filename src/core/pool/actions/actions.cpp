#include "pool/actions/actions.hpp"

#include <cstring>
#include <stdexcept>

namespace remuda {

Actions::Leaves Actions::take_apart(nb::handle actions, std::uint32_t count) const {
  Leaves leaves;
  leaves.reserve(columns_.size());
  if (nest_.split(actions, leaves) && convert_each(leaves, count)) return leaves;
  leaves.clear();
  for (nb::handle leaf : convert_(actions, count)) leaves.push_back(nb::borrow(leaf));
  if (leaves.size() != columns_.size()) throw std::logic_error("an array for each column of the actions");
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (!columns_[i].column().fits(leaves[i], count)) throw std::logic_error("arrays of the columns' dtype and shape");
  return leaves;
}

// Converts each leaf in place. Returns false if a leaf needs the conversion in Python.
bool Actions::convert_each(Leaves& leaves, std::uint32_t count) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i] = columns_[i].convert(leaves[i], count);
    if (!leaves[i].is_valid()) return false;
  }
  return true;
}

void Actions::write(const Leaves& leaves, const std::vector<std::uint32_t>& targets, const Part& part,
                    const Slots& slots) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) columns_[i].write(leaves[i], targets, part, slots);
}

void Actions::move(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) const {
  for (const ActionColumn& each : columns_) {
    const std::size_t bytes = each.column().row_bytes();
    if (bytes == 0) continue;  // The address of an empty vector may be null, which memcpy must not get.
    std::vector<std::byte> actions(from.size() * bytes);
    for (std::size_t i = 0; i < from.size(); ++i)
      std::memcpy(actions.data() + i * bytes, each.column().row(from[i]), bytes);
    for (std::size_t i = 0; i < to.size(); ++i)
      std::memcpy(each.column().row(to[i]), actions.data() + i * bytes, bytes);
  }
}

std::vector<Column> Actions::columns() const {
  std::vector<Column> columns;
  for (const ActionColumn& column : columns_) columns.push_back(column.column());
  return columns;
}

}  // namespace remuda
