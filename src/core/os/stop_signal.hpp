// Makes a signal stop this process as SIGSTOP does. If a later handler calls this one, its own work precedes the stop.
#pragma once

namespace remuda {

// Installs the handler for signal `number`. Throws std::system_error if that fails. Does nothing on platforms without
// process signals.
void stop_at(int number);

}  // namespace remuda
