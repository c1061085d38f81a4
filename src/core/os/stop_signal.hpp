// Makes a signal stop this process as SIGSTOP does, in the place of a signal handler.
#pragma once

namespace remuda {

// Installs the handler. Throws std::system_error; does nothing on platforms without process signals.
void stop_at(int number);

}  // namespace remuda
