// What the kernel knows of the calling thread.  0 where it does not tell.
#pragma once

#include <cstdint>

namespace remuda {

// The core that it runs on: where a core runs several threads at once, those have one number.  May be out of date as
// soon as it is told.
std::uint32_t current_core();
// Goes to that core, if it may run there; from then on it runs wherever it might before.  Some system calls.
void move_to_core(std::uint32_t core);
// For how long it has waited for a core, all told, as others had it; where the kernel does not tell, a second for
// each time that it has lost one to another thread.  Some system calls.
std::uint64_t waited_for_core_ns();
// The id of its process.
std::uint32_t process_id();
// How much CPU time it has used.  A system call.
std::uint64_t thread_cpu_ns();

}  // namespace remuda
