// Whether a worker's result answers anything: it can write whatever it likes into its rings, so that is asked before it
// is acted upon.
#pragma once

#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"
#include "pool/workers/port.hpp"

namespace remuda {

bool is_sound(const Result& result, const Port& port, const Seating& seating, const Slots& slots);

}  // namespace remuda
