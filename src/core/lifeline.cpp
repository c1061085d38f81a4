#include "lifeline.hpp"

#include "platform.hpp"

#if REMUDA_LINUX

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <thread>

namespace remuda {

void tie_life_to(int pidfd) {
  // Every signal is left to the main thread, where Python handles them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([pidfd] {
    pollfd fd{pidfd, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
    }
    kill(0, SIGKILL);  // our process group, ourselves included
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace remuda

#else

namespace remuda {
void tie_life_to(int) {}
}  // namespace remuda

#endif
