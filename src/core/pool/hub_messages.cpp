// What goes over the sockets, in pieces.
#include "pool/hub.hpp"

namespace remuda {

// What is to be read waits until its record is looked at.
void Hub::write_on() {
  if (!transfers_.any_writing()) return;
  for (std::uint32_t w = 0; w < ports_.size(); ++w) {
    if (!transfers_.is_partial(w, Way::kWrite) || !transfers_.can_move(w, Way::kWrite)) continue;
    transfers_.note(w, Way::kWrite, send_(w, nb::none()).is(nb::bool_(true)));
  }
}

// Until the bell has been rung up to `target`, or for about `limit`; or, while messages move, until one of them can go
// on.  False when it was the latter.
// `now`: the time before it, and then after it.
bool Hub::sleep(std::uint32_t target, Nanoseconds limit, Clock::time_point& now) {
  if (!reached(*bell_, target) && transfers_.sleep(limit)) {
    now = Clock::now();
    return false;
  }
  now = remuda::wait(*bell_, target, limit, spin_budget_, now);
  return true;
}

}  // namespace remuda
