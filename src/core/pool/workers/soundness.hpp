// Checks that a worker's result answers a command or a message. A worker can write anything into its rings, so the pool
// checks each result before it uses it.
#pragma once

#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"
#include "pool/workers/port.hpp"

namespace remuda {

bool is_sound(const Result& result, const Port& port, const Seating& seating, const Slots& slots);

}  // namespace remuda
