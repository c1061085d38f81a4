#include "pool/workers/watch.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#endif

namespace remuda {

std::vector<std::uint32_t> Watch::look(Clock::time_point now) {
  looked_ = now;
  news_ = news_ || is_alarm_due(now);
  std::vector<std::uint32_t> ended;
#if REMUDA_LINUX
  std::vector<pollfd> fds;
  for (int pidfd : pidfds_) fds.push_back({pidfd, POLLIN, 0});  // poll ignores the negative descriptors
  for (int fd : listened_) fds.push_back({fd, POLLIN, 0});
  fds.push_back({relay_, POLLIN, 0});
  if (::poll(fds.data(), fds.size(), 0) <= 0) return ended;
  for (std::uint32_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    if (i < pidfds_.size())
      ended.push_back(i);
    else
      news_ = true;
  }
#endif
  return ended;
}

}  // namespace remuda
