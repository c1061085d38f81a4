// The kernel's data about the calling thread, and the main thread. All functions return 0 for data that the kernel does
// not provide.
#pragma once

#include <cstdint>

namespace remuda {

// Returns the core on which the thread runs. The hardware threads of a core have the same number. The thread may leave
// the core at any time.
std::uint32_t current_core();
// Migrates the thread to `core`, if it may run there. Later, the kernel may move it elsewhere. Makes some system calls.
void move_to_core(std::uint32_t core);
// Returns the total time in ns that the thread has waited for a core while other threads used it. If the kernel does
// not provide this time, returns one second for each time that the thread was preempted. Makes some system calls.
std::uint64_t waited_for_core_ns();
// The id of the thread's process.
std::uint32_t process_id();
// The CPU time in ns that the thread has used. Makes a system call.
std::uint64_t thread_cpu_ns();
// The CPU time in ns that the main thread of the process has used. Makes a system call.
std::uint64_t main_thread_cpu_ns();

}  // namespace remuda
