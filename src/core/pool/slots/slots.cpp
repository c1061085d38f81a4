#include "pool/slots/slots.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace remuda {

void Slots::refuse(SlotState from, SlotState to) {
  constexpr const char* kNames[] = {"idle", "in flight", "awaiting a spare", "orphaned", "ready", "failed"};
  throw std::logic_error(std::string("a slot that is ") + kNames[static_cast<unsigned>(from)] + " cannot become " +
                         kNames[static_cast<unsigned>(to)]);
}

std::uint64_t Slots::first_open_step() const {
  std::uint64_t first = ~std::uint64_t{0};
  for (const Slot& slot : slots_) {
    const bool is_open = slot.state == SlotState::kInFlight || slot.state == SlotState::kOrphaned;
    if (is_open && slot.op == Op::kStep) first = std::min(first, slot.sequence);
  }
  return first;
}

bool Slots::any_orphaned_step() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.state == SlotState::kOrphaned && slot.op == Op::kStep; });
}

}  // namespace remuda
