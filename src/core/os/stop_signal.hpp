// A signal that stops this process as SIGSTOP does, after what another handler does about it first.
#pragma once

namespace remuda {

// From now on.  Throws std::system_error; does nothing where there are no process signals.
void stop_at(int number);

}  // namespace remuda
