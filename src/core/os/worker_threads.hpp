// Threads of the core in a worker process. They hold no GIL and call no Python, so they work even if an env is stuck in
// native code. They run until the process ends, with all signals blocked. Linux only; elsewhere there are no worker
// processes.
#pragma once

#include <cstdint>

namespace remuda {

// Starts the lifeline: when the process of `pidfd`, the worker's owner, ends, the thread kills the worker and its
// process group. Takes ownership of `pidfd`. The watcher (src/watcher) kills processes that have left the group, and
// workers that are stopped.
void tie_life_to(int pidfd);

// Starts a thread that limits the memory of `fd`, the file of the worker's output, and takes ownership of it. Native
// code and child processes write to the file directly. So the thread checks it once per kSlice while it grows, and
// punches a hole into its old part. The file keeps its length, so that writers continue to append, but the hole takes
// no memory. The last `kept` bytes stay readable. The file takes at most about twice as much memory, plus the output of
// one slice.
void trim_output(int fd, std::uint64_t kept);

}  // namespace remuda
