// Checks the numbers of slots that a caller passes for a command, in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pool/slots/slots.hpp"

namespace remuda {

// Returns the ids as slots. They must be distinct slots of the part and form whole vector envs: groups of `width`
// neighbours, each group together and in order. Otherwise returns nullopt.
inline std::optional<std::vector<std::uint32_t>> as_targets(std::span<const std::int64_t> ids, const Slots& slots,
                                                            std::uint32_t part, std::uint32_t width) {
  std::vector<std::uint32_t> targets;
  targets.reserve(ids.size());
  std::vector<bool> seen(slots.count());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<std::uint64_t>(ids[i]) >= slots.count()) return std::nullopt;  // also catches negative numbers
    const auto slot = static_cast<std::uint32_t>(ids[i]);
    const auto sub_env = static_cast<std::uint32_t>(i % width);
    if (seen[slot] || slots[slot].part != part || slot % width != sub_env) return std::nullopt;
    if (sub_env != 0 && slot != targets.back() + 1) return std::nullopt;
    seen[slot] = true;
    targets.push_back(slot);
  }
  if (targets.size() % width != 0) return std::nullopt;
  return targets;
}

}  // namespace remuda
