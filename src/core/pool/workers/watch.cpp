#include "pool/workers/watch.hpp"

#include <algorithm>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#include <unistd.h>
#endif

namespace remuda {

#if REMUDA_LINUX

bool Watch::wait() {
  std::vector<pollfd> fds;
  const auto now = Clock::now();
  planned_ = std::exchange(reminder_, kForever);
  {
    const std::lock_guard lock(mutex_);
    for (int fd : pidfds_) fds.push_back({fd, POLLIN, 0});  // poll ignores the negative descriptors
    fds.push_back({relay_, POLLIN, 0});
    if (check_at_ != Clock::time_point{}) planned_ = std::clamp<Nanoseconds>(check_at_ - now, Nanoseconds(0), planned_);
  }
  fds.push_back({wakeup_fd_, POLLIN, 0});
  if (is_closed_.load()) return false;
  const timespec limit{static_cast<time_t>(planned_.count() / 1'000'000'000),
                       static_cast<long>(planned_.count() % 1'000'000'000)};
  ::ppoll(fds.data(), fds.size(), &limit, nullptr);
  if (is_closed_.load()) return false;
  std::uint64_t count;
  [[maybe_unused]] const auto read = ::read(wakeup_fd_, &count, sizeof count);
  return true;
}

void Watch::write_one() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wakeup_fd_, &one, sizeof one);  // fails only if it is readable anyway
}

std::vector<std::uint32_t> Watch::ended() const {
  std::vector<pollfd> fds;
  {
    const std::lock_guard lock(mutex_);
    for (int pidfd : pidfds_) fds.push_back({pidfd, POLLIN, 0});
  }
  std::vector<std::uint32_t> ended;
  if (::poll(fds.data(), fds.size(), 0) <= 0) return ended;
  for (std::uint32_t i = 0; i < fds.size(); ++i)
    if (fds[i].revents != 0) ended.push_back(i);
  return ended;
}

#else

bool Watch::wait() { return false; }
void Watch::write_one() const {}
std::vector<std::uint32_t> Watch::ended() const { return {}; }

#endif

}  // namespace remuda
