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
    killpg(getpid(), SIGKILL);  // ourselves included, unless an env has moved us to another group, which is not ours
    kill(getpid(), SIGKILL);
  });
}

}  // namespace remuda

#else

namespace remuda {
void tie_life_to(int) {}
}  // namespace remuda

#endif
