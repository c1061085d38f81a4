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

Transfers::UnderWay Transfers::under_way() const {
  UnderWay found;
  if (reading_ + writing_ == 0) return found;
  Clock::time_point moved{};
  for (const MessageSocket& socket : sockets_) {
    if (!socket.is_reading() && !socket.is_writing()) continue;
    found.sockets_.push_back({socket.fd(), socket.is_reading(), socket.is_writing()});
    moved = std::max(moved, socket.moved());
  }
  if (Clock::now() - moved >= kStill) found.sockets_.clear();
  return found;
}

bool Transfers::UnderWay::sleep(Nanoseconds limit) const {
#if REMUDA_LINUX
  if (sockets_.empty()) return false;
  std::vector<pollfd> fds;
  for (const Awaited& one : sockets_) {
    const int events = (one.is_read ? POLLIN : 0) | (one.is_written ? POLLOUT : 0);
    fds.push_back({one.fd, static_cast<short>(events), 0});
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
