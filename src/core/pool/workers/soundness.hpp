// Checks that a worker's result answers a command or a message. A worker can write anything into its rings, so the pool
// checks each result before it uses it.
#pragma once

#include <algorithm>

#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"
#include "pool/workers/port.hpp"

namespace remuda {

inline bool answers_message(const Result& result, const Port& port) {
  return std::find(port.messages.begin(), port.messages.end(), result.sequence) != port.messages.end();
}

// Returns whether the slots that this result answers are neighbours and wait for it, in the rows that it names.
inline bool answers_commands(const Result& result, const Seating& seating, const Slots& slots) {
  const std::uint32_t first = seating.slot_of(result.env);
  if (first == Seating::kNoSlot) return false;
  for (std::uint32_t i = 1; seating.has_spares() && i < result.count; ++i)
    if (seating.slot_of(result.env + i) != first + i) return false;
  return slots.are_in_flight(first, result.count, result.row);
}

inline bool is_sound(const Result& result, const Port& port, const Seating& seating, const Slots& slots) {
  if (result.flags & kIsMessage) return result.count == 1 && answers_message(result, port);
  if (result.count == 0 || (result.count != port.width && result.flags != 0)) return false;
  if (!port.hosts(result.env) || result.count > port.first_env + port.envs - result.env) return false;
  if (result.env % port.width != 0 || result.count % port.width != 0) return false;
  if ((result.flags & kHasSpares) && !seating.has_spares()) return false;
  return answers_commands(result, seating, slots);
}

}  // namespace remuda
