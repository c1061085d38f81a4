// The rest of messages that a socket does not take, or has not brought, at once: neither is ever waited for alone.
#include <algorithm>

#include "os/platform.hpp"
#include "pool/hub.hpp"

#if REMUDA_LINUX
#include <poll.h>
#endif

namespace remuda {

namespace {

// How long we listen to sockets before we look at the rings again, which nobody tells us of meanwhile.
constexpr Nanoseconds kSocketSlice = std::chrono::milliseconds(1);
// Who has not moved for so long gets no more of them: then sockets are looked at like all else that does not ring.
constexpr Nanoseconds kStill = 2 * kSocketSlice;

}  // namespace

// Whether a socket is ready to go on with a message.
bool Hub::can_move(Port& port, Way way) {
#if REMUDA_LINUX
  pollfd fd{port.socket, static_cast<short>(way == Way::kRead ? POLLIN : POLLOUT), 0};
  if (port.socket >= 0 && ::poll(&fd, 1, 0) <= 0) return false;
#else
  static_cast<void>(way);
#endif
  note_move(port);
  return true;
}

void Hub::note_move(Port& port) { moved_ = port.moved = Clock::now(); }

// What is to be read waits until its record is looked at.
void Hub::write_on() {
  if (!writes_) return;
  writes_ = false;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    Port& port = ports_[w];
    if (!port.writing) continue;
    writes_ = true;  // also where an interrupt ends this here
    if (can_move(port, Way::kWrite)) port.writing = send_(w, nb::none()).is(nb::bool_(true));
  }
}

// Until the bell has been rung up to `target`, or for about `limit`; or, while messages move, until one of them can go
// on.  False when it was the latter.
// `now`: the time before it, and then after it.
bool Hub::sleep(std::uint32_t target, Nanoseconds limit, Clock::time_point& now) {
#if REMUDA_LINUX
  if (now - moved_ < kStill && !reached(*bell_, target)) {
    std::vector<pollfd> fds;
    for (const Port& port : ports_) {
      const int events = (port.reading ? POLLIN : 0) | (port.writing ? POLLOUT : 0);
      if (events != 0) fds.push_back({port.socket, static_cast<short>(events), 0});
    }
    if (!fds.empty()) {
      const auto slice = std::chrono::ceil<std::chrono::milliseconds>(std::min(limit, kSocketSlice));
      ::poll(fds.data(), fds.size(), static_cast<int>(slice.count()));
      now = Clock::now();
      return false;
    }
  }
#endif
  now = remuda::wait(*bell_, target, limit, spin_budget_, now);
  return true;
}

}  // namespace remuda
