#include "lifeline.hpp"

#include "platform.hpp"

#if REMUDA_LINUX

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "family.hpp"

namespace remuda {

namespace {

// The family first: when we are gone nobody looks for it.
void kill_all(const std::string& key) {
  try {
    kill_family({key}, 0);
  } catch (...) {  // no memory: then at least the group
  }
  kill(0, SIGKILL);  // our process group, ourselves included
}

}  // namespace

void tie_life_to(int pidfd, std::string key) {
  // Every signal is left to the main thread, where Python handles them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([pidfd, key = std::move(key)] {
    pollfd fd{pidfd, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
    }
    kill_all(key);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace remuda

#else

namespace remuda {
void tie_life_to(int, std::string) {}
}  // namespace remuda

#endif
