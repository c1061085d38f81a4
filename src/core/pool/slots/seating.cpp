#include "pool/slots/seating.hpp"

#include <algorithm>

namespace remuda {

void Seating::seat_in_order() {
  spares_.clear();
  for (std::uint32_t env = 0; env < slots_.size(); ++env) {
    const bool is_spare = env >= envs_.size();
    slots_[env] = is_spare ? kNoSlot : env;
    if (is_spare)
      spares_.push_back(env);
    else
      envs_[env] = env;
  }
}

std::uint32_t Seating::swap_in_spare(std::uint32_t slot) {
  const std::uint32_t finished = envs_[slot], next = spares_.front();
  spares_.pop_front();
  spares_.push_back(finished);
  slots_[finished] = kNoSlot;
  slots_[next] = slot;
  envs_[slot] = next;
  return finished;
}

std::vector<std::uint32_t> Seating::take_due(std::uint64_t open) {
  std::sort(due_.begin(), due_.end(), [](const Due& a, const Due& b) { return a.sequence < b.sequence; });
  const auto known = std::find_if(due_.begin(), due_.end(), [open](const Due& due) { return due.sequence > open; });
  std::vector<std::uint32_t> slots;
  for (auto due = due_.begin(); due != known; ++due) slots.push_back(due->slot);
  due_.erase(due_.begin(), known);
  return slots;
}

}  // namespace remuda
