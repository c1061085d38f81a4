#include "os/lifeline.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "os/detached_thread.hpp"

namespace remuda {

void tie_life_to(int pidfd) {
  start_detached([pidfd] {
    pollfd fd{pidfd, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
    }
    // Kills the worker's own group. An env may have moved the worker to another group, which must survive, so the
    // worker is killed separately.
    killpg(getpid(), SIGKILL);
    kill(getpid(), SIGKILL);
  });
}

}  // namespace remuda

#else

namespace remuda {
void tie_life_to(int) {}
}  // namespace remuda

#endif
