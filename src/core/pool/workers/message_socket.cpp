#include "pool/workers/message_socket.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#endif

namespace remuda {

namespace {

// The longest time in ms to wait for a busy worker to read. Then the rest of the message is copied, to be sent later.
[[maybe_unused]] constexpr int kMomentMs = 1;
// The most bytes that one `read` receives. During a large message, signals and other workers are thus served in
// between.
[[maybe_unused]] constexpr std::size_t kBytesPerRead = 1 << 20;

}  // namespace

void MessageSocket::open(int fd) {
  fd_ = fd;
  if (!is_held_ || fd < 0) outbox_.clear();
  is_held_ = false;
  sent_ = 0;
  end_reading(Arrival::kLost);
  moved_ = {};
}

void MessageSocket::hold() {
  open(-1);
  is_held_ = true;
}

void MessageSocket::post(std::span<const Bytes> parts) {
  if (fd_ < 0 && !is_held_) return;  // The worker is gone. Its process descriptor reports that.
  if (outbox_.empty()) moved_ = Clock::now();
  Head head{{}, static_cast<std::uint32_t>(parts.size())};
  std::copy_n(kMark.begin(), kMarkBytes, head.mark.begin());
  std::vector<std::uint64_t> sizes;
  for (const Bytes& part : parts) sizes.push_back(part.size());
  write_on();
  const auto send = [this](Bytes piece) {
    const std::size_t sent = is_held_ || !outbox_.empty() ? 0 : write(piece, true);
    if (sent < piece.size()) outbox_.emplace_back(piece.begin() + static_cast<std::ptrdiff_t>(sent), piece.end());
  };
  send(std::as_bytes(std::span(&head, 1)));
  send(std::as_bytes(std::span(sizes)));
  for (const Bytes& part : parts) send(part);
}

void MessageSocket::write_on() {
  while (is_writing()) {
    const std::vector<std::byte>& first = outbox_.front();
    sent_ += write(Bytes(first).subspan(sent_), false);
    if (is_writing() && sent_ < first.size()) return;
    sent_ = 0;
    if (is_writing()) outbox_.pop_front();
  }
}

#if REMUDA_LINUX

// Writes bytes to the socket. Returns the number of bytes that it has taken. If the worker is gone, returns the number
// of all bytes, because no process will read them. `is_patient`: waits a moment for room even before the first byte.
std::size_t MessageSocket::write(Bytes bytes, bool is_patient) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const auto count = ::send(fd_, bytes.data() + written, bytes.size() - written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
      moved_ = Clock::now();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd fd{fd_, POLLOUT, 0};
      if ((written == 0 && !is_patient) || ::poll(&fd, 1, kMomentMs) <= 0) break;
    } else if (errno != EINTR) {
      outbox_.clear();
      return bytes.size();
    }
  }
  return written;
}

MessageSocket::Arrival MessageSocket::read(const MakePart& make_part) {
  if (!is_reading_) moved_ = Clock::now();
  is_reading_ = true;
  for (std::size_t budget = kBytesPerRead;;) {
    while (missing_.empty()) {
      const Arrival arrival = begin_piece(make_part);
      if (arrival != Arrival::kPartial) return end_reading(arrival);
    }
    if (budget == 0) return Arrival::kPartial;
    const auto count = ::recv(fd_, missing_.data(), std::min(budget, missing_.size()), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Arrival::kPartial;
    if (count <= 0) return end_reading(Arrival::kLost);
    missing_ = missing_.subspan(static_cast<std::size_t>(count));
    budget -= static_cast<std::size_t>(count);
    moved_ = Clock::now();
  }
}

#else

std::size_t MessageSocket::write(Bytes bytes, bool) { return bytes.size(); }
MessageSocket::Arrival MessageSocket::read(const MakePart&) { return Arrival::kLost; }

#endif

// Called when a piece is complete: begins the next piece. Returns kPartial if there is a piece to receive.
MessageSocket::Arrival MessageSocket::begin_piece(const MakePart& make_part) try {
  switch (const std::size_t piece = pieces_begun_++) {
    case 0:
      missing_ = std::as_writable_bytes(std::span(&head_, 1));
      return Arrival::kPartial;
    case 1:
      if (std::memcmp(head_.mark.data(), kMark.data(), kMarkBytes) != 0 || head_.parts > kMaxParts)
        return Arrival::kNonsense;
      sizes_.resize(head_.parts);
      missing_ = std::as_writable_bytes(std::span(sizes_));
      return Arrival::kPartial;
    default:
      if (piece - 2 == sizes_.size()) return Arrival::kWhole;
      missing_ = {make_part(sizes_[piece - 2]), sizes_[piece - 2]};
      return Arrival::kPartial;
  }
} catch (const std::bad_alloc&) {  // The sizes exceed the free memory.
  return Arrival::kNonsense;
}

MessageSocket::Arrival MessageSocket::end_reading(Arrival arrival) {
  is_reading_ = false;
  pieces_begun_ = 0;
  missing_ = {};
  return arrival;
}

}  // namespace remuda
