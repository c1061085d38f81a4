#include "os/stop_signal.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace remuda {

namespace {

void stop(int) {
  const int error = errno;
  kill(getpid(), SIGSTOP);
  errno = error;
}

}  // namespace

void stop_at(int number) {
  struct sigaction action{};
  action.sa_handler = stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  if (sigaction(number, &action, nullptr) != 0)
    throw std::system_error(errno, std::generic_category(), "could not handle a signal");
}

}  // namespace remuda
#else
namespace remuda {

void stop_at(int) {}

}  // namespace remuda
#endif
