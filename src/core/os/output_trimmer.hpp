// Keeps a file of captured output short, whoever writes to it.
//
// Native code and child processes write to the descriptor directly, so nobody is asked before the file
// grows.  A thread of its own looks at it once a slice and punches a hole into what is old: the file
// keeps its length, so that appending goes on undisturbed, but the hole takes no memory.  The thread
// holds no GIL: an env that floods its output from native code is no obstacle.
#pragma once

#include <cstdint>

namespace remuda {

// Takes over `fd`.  Its last `kept` bytes stay readable.  It takes at most about twice as much memory, and
// what is written within a slice.  Linux only; elsewhere there are no worker processes.
void trim_output(int fd, std::uint64_t kept);

}  // namespace remuda
