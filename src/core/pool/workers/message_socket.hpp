// The pool's end of a worker's socket. Sends and receives whole messages of several parts, and never waits for a worker
// that does not read.
//
// A message is a head (the mark and the number of parts), the size of each part, and the parts. `SocketChannel` in
// _wire/channel.py is the other end.
//
// No call runs Python code, so no signal handler can interrupt the posting or receiving of a message half-way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "ipc/clock.hpp"

namespace remuda {

class MessageSocket {
 public:
  static constexpr std::size_t kMarkBytes = 12;
  static constexpr std::array<char, kMarkBytes + 1> kMark{"remuda: msg\n"};
  static constexpr std::uint32_t kMaxParts = 1U << 24;

  // The state of a message that is being received: kWhole, it is complete; kPartial, more will arrive; kLost, the
  // worker died before its end; kNonsense, it is not a message.
  enum class Arrival { kWhole, kPartial, kLost, kNonsense };
  // Returns memory for a part of so many bytes. The memory must stay valid until the message is complete. May throw
  // std::bad_alloc.
  using MakePart = std::function<std::byte*(std::uint64_t bytes)>;

  // Replaces the socket; the caller still owns the descriptor. -1: there is no socket, and messages are dropped.
  // Messages that were kept by `hold` are sent over the new socket. Any other incomplete message is dropped.
  void open(int fd);
  // Stops using the socket, and keeps further messages for the next socket.
  void hold();

  // Queues a message after the earlier ones, sends as much as the socket takes, and copies the rest.
  void post(std::span<const Bytes> parts);
  // Sends as much of the queued messages as the socket takes.
  void write_on();
  // Receives the bytes of a message that are available.
  Arrival read(const MakePart& make_part);

  int fd() const { return fd_; }
  bool is_reading() const { return is_reading_; }
  bool is_writing() const { return fd_ >= 0 && !outbox_.empty(); }
  bool is_under_way() const { return is_reading() || is_writing(); }
  // The time of the latest progress: when a message began, or when bytes of it were sent or received.
  Clock::time_point moved() const { return moved_; }

 private:
  struct Head {
    std::array<char, kMarkBytes> mark;
    std::uint32_t parts;
  };
  static_assert(sizeof(Head) == 16);

  std::size_t write(Bytes bytes, bool is_patient);
  Arrival begin_piece(const MakePart& make_part);
  Arrival end_reading(Arrival arrival);

  int fd_ = -1;
  bool is_held_ = false;
  bool is_reading_ = false;
  std::deque<std::vector<std::byte>> outbox_;  // The posted data that is not sent yet.
  std::size_t sent_ = 0;                       // The number of bytes of the first vector in `outbox_` that are sent.
  // The next members belong to the message that is being received. Its pieces are the head, the sizes, and each part.
  Head head_{};
  std::vector<std::uint64_t> sizes_;
  std::size_t pieces_begun_ = 0;
  std::span<std::byte> missing_;  // where the missing bytes of the current piece go
  Clock::time_point moved_{};
};

}  // namespace remuda
