#include "pool/workers/mail.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipc/blob_parts.hpp"
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

Mail::Mail(std::uint32_t workers, const nb::sequence& queues) : sockets_(workers), arriving_(workers) {
  for (nb::handle pair : queues)
    queues_.push_back({pair[0].attr("put"), pair[1].attr("get_nowait"), pair[1].attr("empty"), nb::borrow(pair)});
}

void Mail::hold(std::uint32_t worker) {
  change(worker, &MessageSocket::hold);
  if (queues_.empty()) return;
  for (nb::handle queue : queues_[worker].both)
    while (!nb::cast<bool>(queue.attr("empty")())) queue.attr("get_nowait")();
}

void Mail::post(std::uint32_t worker, nb::handle parts) {
  const PartBytes bytes(parts);
  if (queues_.empty()) {
    nb::gil_scoped_release release;  // safe, because `bytes` holds the buffers of the parts
    return change(worker, [&](MessageSocket& socket) { socket.post(bytes.bytes()); });
  }
  nb::list copies;
  for (const Bytes& part : bytes.bytes())
    if (std::byte* copy = add_part(copies, part.size()); !part.empty()) std::memcpy(copy, part.data(), part.size());
  queues_[worker].put(copies);
}

Mail::Arrival Mail::read(std::uint32_t worker, nb::object& parts) {
  if (!queues_.empty()) {
    const Queues& queues = queues_[worker];
    if (nb::cast<bool>(queues.is_empty())) return Arrival::kPartial;  // The record may arrive before its message.
    parts = queues.get();
    return Arrival::kWhole;
  }
  if (!sockets_[worker].is_reading()) arriving_[worker] = nb::list();
  Arrival arrival = Arrival::kPartial;
  change(worker, [&](MessageSocket& socket) {
    arrival = socket.read([&](std::uint64_t size) { return add_part(arriving_[worker], size); });
  });
  if (arrival != Arrival::kPartial) parts = std::exchange(arriving_[worker], nb::list());
  return arrival;
}

Mail::UnderWay Mail::under_way() const {
  UnderWay found;
  if (under_way_ == 0) return found;
  Clock::time_point moved{};
  for (const MessageSocket& socket : sockets_) {
    if (!socket.is_under_way()) continue;
    found.sockets.push_back({socket.fd(), socket.is_reading(), socket.is_writing()});
    moved = std::max(moved, socket.moved());
  }
  if (Clock::now() - moved >= kStill) found.sockets.clear();
  return found;
}

bool Mail::UnderWay::sleep(Nanoseconds limit) const {
#if REMUDA_LINUX
  if (sockets.empty()) return false;
  std::vector<pollfd> fds;
  for (const Awaited& one : sockets) {
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
