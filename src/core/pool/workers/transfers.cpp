#include "pool/workers/transfers.hpp"

#include <algorithm>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#endif

namespace remuda {

namespace {

// How long we listen to sockets before we look at the rings again, which nobody tells us of meanwhile.
[[maybe_unused]] constexpr Nanoseconds kSocketSlice = std::chrono::milliseconds(1);
// Who has not moved for so long gets no more of them.
[[maybe_unused]] constexpr Nanoseconds kStill = 2 * kSocketSlice;

}  // namespace

void Transfers::note(std::uint32_t worker, Way way, bool is_partial) {
  Socket& socket = sockets_[worker];
  bool& flag = way == Way::kRead ? socket.reading : socket.writing;
  if (flag == is_partial) return;
  flag = is_partial;
  std::uint32_t& count = way == Way::kRead ? reading_ : writing_;
  is_partial ? ++count : --count;
  if (is_partial) moved_ = socket.moved = Clock::now();
}

bool Transfers::can_move(std::uint32_t worker, Way way) {
  Socket& socket = sockets_[worker];
#if REMUDA_LINUX
  pollfd fd{socket.fd, static_cast<short>(way == Way::kRead ? POLLIN : POLLOUT), 0};
  if (socket.fd >= 0 && ::poll(&fd, 1, 0) <= 0) return false;
#else
  static_cast<void>(way);
#endif
  moved_ = socket.moved = Clock::now();
  return true;
}

bool Transfers::sleep(Nanoseconds limit) const {
#if REMUDA_LINUX
  if (reading_ + writing_ == 0 || Clock::now() - moved_ >= kStill) return false;
  std::vector<pollfd> fds;
  for (const Socket& socket : sockets_) {
    const int events = (socket.reading ? POLLIN : 0) | (socket.writing ? POLLOUT : 0);
    if (events != 0) fds.push_back({socket.fd, static_cast<short>(events), 0});
  }
  const auto slice = std::chrono::ceil<std::chrono::milliseconds>(std::min(limit, kSocketSlice));
  ::poll(fds.data(), fds.size(), static_cast<int>(slice.count()));
  return true;
#else
  static_cast<void>(limit);
  return false;
#endif
}

}  // namespace remuda
