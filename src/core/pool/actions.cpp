#include "pool/actions.hpp"

#include <cstring>

namespace remuda {

bool Actions::fits(nb::handle array, std::size_t count) const {
  if (columns_.size() != 1 || !columns_[0].fits(array, static_cast<std::uint32_t>(count))) return false;
  return !choices_ || first_outside(array, choices_->first, choices_->second) < 0;
}

void Actions::write_all(nb::list arrays, const std::vector<std::uint32_t>& targets, const Part& part,
                        const Slots& slots) const {
  if (nb::len(arrays) != columns_.size()) throw nb::value_error("one array per action column is needed");
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    nb::handle array = arrays[c];
    auto* from = reinterpret_cast<PyArrayObject*>(array.ptr());
    if (!PyArray_Check(array.ptr()) || !PyArray_IS_C_CONTIGUOUS(from) ||
        static_cast<std::size_t>(PyArray_NBYTES(from)) != columns_[c].row_bytes() * targets.size())
      throw nb::value_error("an array of actions does not fit its column");
    write_column(columns_[c], array, targets, part, slots);
  }
}

void Actions::write_column(const Column& column, nb::handle array, const std::vector<std::uint32_t>& targets,
                           const Part& part, const Slots& slots) {
  const auto* from = static_cast<const std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
  const std::size_t bytes = column.row_bytes();
  if (targets == part.slots()) {
    std::memcpy(column.row(part.first_position()), from, bytes * targets.size());
  } else {
    for (std::size_t i = 0; i < targets.size(); ++i)
      std::memcpy(column.row(slots[targets[i]].position), from + i * bytes, bytes);
  }
}

}  // namespace remuda
