// What the kernel knows of the calling thread.  0 where it does not tell.
#pragma once

#include <cstdint>

namespace remuda {

// The core that it runs on: where a core runs several threads at once, those have one number.  May be out of date as
// soon as it is told.
std::uint32_t current_core();
// How often it has lost its core to another thread while it could have gone on; `sched_yield` counts where there was
// another.  A system call.
std::uint64_t involuntary_switches();
// The id of its process.
std::uint32_t process_id();
// How much CPU time it has used.  A system call.
std::uint64_t thread_cpu_ns();

}  // namespace remuda
