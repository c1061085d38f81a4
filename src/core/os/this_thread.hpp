// The kernel's data about the calling thread. All functions return 0 if the kernel does not provide it.
#pragma once

#include <cstdint>

namespace remuda {

// The core that the thread runs on. Hardware threads of one core share a number. The answer may be out of date at once.
std::uint32_t current_core();
// Migrates to that core, if the thread may run there, without a lasting restriction. Makes some system calls.
void move_to_core(std::uint32_t core);
// The total time in ns that the thread has waited for a core that other threads used. If the kernel does not provide
// it, the result is a second for each time that the thread was preempted. Makes some system calls.
std::uint64_t waited_for_core_ns();
// The id of the thread's process.
std::uint32_t process_id();
// The CPU time in ns that the thread has used. Makes a system call.
std::uint64_t thread_cpu_ns();

}  // namespace remuda
