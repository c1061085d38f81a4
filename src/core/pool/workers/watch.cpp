#include "pool/workers/watch.hpp"

#include <algorithm>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#include <unistd.h>
#endif

namespace remuda {

void Watch::plan() {
  if (!need_gil_) clock_.look_awake(Clock::now());
  planned_ = std::exchange(reminder_, kForever);
  const std::lock_guard lock(mutex_);
  if (check_at_ != Clock::time_point{})
    planned_ = std::clamp<Nanoseconds>(check_at_ - Clock::now(), Nanoseconds(0), planned_);
}

#if REMUDA_LINUX

bool Watch::wait() {
  std::vector<pollfd> fds;
  plan();
  {
    const std::lock_guard lock(mutex_);
    for (int fd : pidfds_) fds.push_back({fd, POLLIN, 0});  // poll ignores the negative descriptors
    fds.push_back({awaits_records_.load() ? relay_ : -1, POLLIN, 0});
  }
  fds.push_back({wakeup_.fd(), POLLIN, 0});
  if (is_closed_.load()) return false;
  const timespec limit{static_cast<time_t>(planned_.count() / 1'000'000'000),
                       static_cast<long>(planned_.count() % 1'000'000'000)};
  ::ppoll(fds.data(), fds.size(), &limit, nullptr);
  note_sleep();
  if (is_closed_.load()) return false;
  if (fds[fds.size() - 2].revents != 0) awaits_records_.store(false);
  wakeup_.clear();
  return true;
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

bool Watch::wait() {
  plan();
  if (!is_closed_.load()) wakeup_.wait(planned_);
  note_sleep();
  return !is_closed_.load();
}

std::vector<std::uint32_t> Watch::ended() const { return {}; }

#endif

}  // namespace remuda
