// A process that leads a group of its own: signals to all of it, and how it ended.
//
// A pid says who is meant only as long as nobody has taken the exit code; then it may be given to another.  So whatever
// is done here goes by the process descriptor, or happens while the descriptor says that the pid is still taken.
#pragma once

#include <optional>

namespace remuda {

// Sends a signal to the process, and to all others in the group with its pid for a number, wherever the process itself
// has gone meanwhile.  Linux only, as all here; elsewhere there are no worker processes.
void signal_group(int pidfd, int pid, int number);

// The same for kernels before 6.9, which know no process descriptors of groups.  Once the exit code has been taken, it
// signals nobody.
void signal_group_by_number(int pidfd, int pid, int number);

// Takes the exit code of a process that has ended, if it is our child, and those of our children in its group: who
// loses his parent comes to us where we are the first process of a container.  All were killed: waits up to
// `patience_ms` for those that are still dying.  Returns the exit code, negative for a signal.
//
// Nothing if it is not our child, and where nobody is told of exit codes (SIGCHLD is ignored, somebody waits for all
// children).
std::optional<int> reap_group(int pidfd, int pid, int patience_ms);

// The exit code of a process that has ended and whose exit code somebody has taken already.  Kernels know it from 6.15
// on.
std::optional<int> exit_code_of(int pidfd);

}  // namespace remuda
