#include "pool/workers/transfers.hpp"

#include <algorithm>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#endif

namespace remuda {

namespace {

// The longest single wait for sockets. During this wait, results in the rings do not wake the caller.
[[maybe_unused]] constexpr Nanoseconds kSocketSlice = std::chrono::milliseconds(1);
// Once no message has progressed for this long, the caller no longer waits for sockets.
[[maybe_unused]] constexpr Nanoseconds kStill = 2 * kSocketSlice;

}  // namespace

bool Transfers::sleep(Nanoseconds limit) const {
#if REMUDA_LINUX
  if (reading_ + writing_ == 0) return false;
  std::vector<pollfd> fds;
  Clock::time_point moved{};
  for (const MessageSocket& socket : sockets_) {
    const int events = (socket.is_reading() ? POLLIN : 0) | (socket.is_writing() ? POLLOUT : 0);
    if (events == 0) continue;
    fds.push_back({socket.fd(), static_cast<short>(events), 0});
    moved = std::max(moved, socket.moved());
  }
  if (Clock::now() - moved >= kStill) return false;
  const auto slice = std::chrono::ceil<std::chrono::milliseconds>(std::min(limit, kSocketSlice));
  ::poll(fds.data(), fds.size(), static_cast<int>(slice.count()));
  return true;
#else
  static_cast<void>(limit);
  return false;
#endif
}

}  // namespace remuda
