// Makes a signal stop this process as SIGSTOP does. A handler that is installed later can do its own work and then call
// this one.
#pragma once

namespace remuda {

// Installs the handler for signal `number`. Throws std::system_error if that fails. Does nothing on platforms without
// process signals.
void stop_at(int number);

}  // namespace remuda
