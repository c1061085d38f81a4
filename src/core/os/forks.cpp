#include "os/forks.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <pthread.h>

namespace remuda {

namespace {
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });
}  // namespace

}  // namespace remuda
#endif
