// Recognises a forked child that continues the code of its parent.
#pragma once

#include <cstdint>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <pthread.h>
#endif

namespace remuda {

// Counts the forks of this process's ancestry. The count changes only between a fork and its return in the child.
inline std::uint64_t fork_count = 0;

#if REMUDA_LINUX
inline const int kCountsForks = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });
#endif

}  // namespace remuda
