// Limits the memory of a file of captured output.
//
// Native code and child processes write to the descriptor directly, so remuda cannot intervene before the file grows. A
// separate thread checks the file once per kSlice and punches a hole into its old part. The file keeps its length, so
// that writers continue to append undisturbed, but the hole takes no memory. The thread holds no GIL, so it works even
// if an env floods its output from native code.
#pragma once

#include <cstdint>

namespace remuda {

// Starts the thread that trims the file `fd`. Takes ownership of `fd`. The last `kept` bytes stay readable. The file
// takes at most about twice as much memory, plus the output of one slice. Linux only; elsewhere there are no worker
// processes.
void trim_output(int fd, std::uint64_t kept);

}  // namespace remuda
