// Makes a signal stop this process as SIGSTOP does. A handler that is installed later and chains to this one runs
// first.
#pragma once

namespace remuda {

// Installs the handler. Throws std::system_error; does nothing on platforms without process signals.
void stop_at(int number);

}  // namespace remuda
