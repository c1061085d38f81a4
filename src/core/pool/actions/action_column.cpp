#include "pool/actions/action_column.hpp"

#include <cstring>

namespace remuda {

namespace {

PyArrayObject* as_array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

const std::byte* data_of(nb::handle array) { return static_cast<const std::byte*>(PyArray_DATA(as_array(array))); }

}  // namespace

bool ActionColumn::fits(nb::handle value, std::uint32_t count) const {
  if (!column_.fits(value, count)) return false;
  return !bounds_ || are_choices(data_of(value), static_cast<std::size_t>(PyArray_SIZE(as_array(value))));
}

// `numbers`: int64 values, which may be unaligned.
bool ActionColumn::are_choices(const std::byte* numbers, std::size_t count) const {
  const std::vector<Bounds>& bounds = *bounds_;
  if (bounds.empty()) return false;
  for (std::size_t i = 0, pair = 0; i < count; ++i) {
    std::int64_t number;
    std::memcpy(&number, numbers + i * sizeof number, sizeof number);
    if (number < bounds[pair].first || number > bounds[pair].second) return false;
    if (++pair == bounds.size()) pair = 0;
  }
  return true;
}

void ActionColumn::write(nb::handle array, const std::vector<std::uint32_t>& targets, const Part& part,
                         const Slots& slots) const {
  const std::byte* from = data_of(array);
  const std::size_t bytes = column_.row_bytes();
  if ((&targets == &part.slots() || targets == part.slots()) && part.has_actions_in_order()) {
    std::memcpy(column_.row(part.next_action_row(part.first_position())), from, bytes * targets.size());
  } else {
    for (std::size_t i = 0; i < targets.size(); ++i)
      std::memcpy(column_.row(part.next_action_row(slots[targets[i]].position)), from + i * bytes, bytes);
  }
}

}  // namespace remuda
