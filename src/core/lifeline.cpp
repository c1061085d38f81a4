#include "lifeline.hpp"

#include "platform.hpp"

#if REMUDA_LINUX

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <string>
#include <utility>

#include "family.hpp"
#include "silent_thread.hpp"

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
  start_silently([pidfd, key = std::move(key)] {
    pollfd fd{pidfd, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
    }
    kill_all(key);
  });
}

}  // namespace remuda

#else

namespace remuda {
void tie_life_to(int, std::string) {}
}  // namespace remuda

#endif
