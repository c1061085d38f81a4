// Sends signals to a process that leads its own group, and to the whole group, and takes exit codes.
//
// A pid identifies a process only until its exit code is taken; then the kernel may reuse the pid. So every function
// here uses the process descriptor, or acts only while the descriptor shows that the pid is still in use.
#pragma once

#include <optional>

namespace remuda {

// Sends a signal to the process, and to all others in the group numbered `pid`. The process itself may have moved to
// another group. Sends nothing once the exit code of the process has been taken. Linux only, as all functions here;
// elsewhere there are no worker processes.
void signal_group(int pidfd, int pid, int number);

// Takes the exit codes of an ended process and of all children in its group, as far as they are children of this
// process. (In a container where this process is the first one, orphans become its children.) All of them must have
// been killed: the function waits up to `patience_ms` for those that are still dying. Returns the exit code of the
// process; -n if signal n killed it.
//
// Returns nullopt if the process is not a child of this one. Also returns nullopt if the exit code is not available,
// because SIGCHLD is ignored or another thread waits for all children.
std::optional<int> reap_group(int pidfd, int pid, int patience_ms);

// Returns the exit code of an ended process, also after another caller has taken it. Needs Linux 6.15; returns nullopt
// on older kernels.
std::optional<int> exit_code_of(int pidfd);

}  // namespace remuda
