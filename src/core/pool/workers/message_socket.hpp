// The pool's end of a worker's socket: sends and receives whole messages of several parts, and never waits for a worker
// that does not read.
//
// A message is a head (the mark and the number of parts), the size of each part, and the parts. `SocketChannel` in
// _wire/channel.py is the other end.
//
// No call runs Python code, so no signal handler can interrupt a message half-way: it is posted, or received, or not.
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

  // The state of a message that is being read: complete; incomplete; cut off because the worker died; or not a message.
  enum class Arrival { kWhole, kPartial, kLost, kNonsense };
  // Returns memory for a part of so many bytes. It must stay valid until the message is complete. May throw
  // std::bad_alloc.
  using MakePart = std::function<std::byte*(std::uint64_t bytes)>;

  // Replaces the socket, which stays the caller's; -1: no socket, and messages are dropped. Messages that were held are
  // sent over the new socket. Any other incomplete message is dropped.
  void open(int fd);
  // Stops using the socket, and keeps further messages for the next one.
  void hold();

  // Queues a message behind the earlier ones, sends as much as the socket takes, and copies the rest.
  void post(std::span<const Bytes> parts);
  // Sends as much of the queued messages as the socket takes.
  void write_on();
  // Receives the available bytes of a message.
  Arrival read(const MakePart& make_part);

  int fd() const { return fd_; }
  bool is_reading() const { return is_reading_; }
  bool is_writing() const { return fd_ >= 0 && !outbox_.empty(); }
  // The time when a message began, or when its latest bytes were sent or received.
  Clock::time_point moved() const { return moved_; }

 private:
  struct Head {
    std::array<char, kMarkBytes> mark;
    std::uint32_t parts;
  };
  static_assert(sizeof(Head) == 16);

  std::size_t write(Bytes bytes, bool is_patient);
  bool has_room_in_a_moment() const;
  Arrival begin_piece(const MakePart& make_part);
  Arrival end_reading(Arrival arrival);

  int fd_ = -1;
  bool is_held_ = false;
  bool is_reading_ = false;
  std::deque<std::vector<std::byte>> outbox_;  // posted and not yet sent
  std::size_t sent_ = 0;                       // sent bytes of the first vector in `outbox_`
  // The message that is being received. Its pieces are the head, the sizes, and each part.
  Head head_{};
  std::vector<std::uint64_t> sizes_;
  std::size_t pieces_begun_ = 0;
  std::span<std::byte> missing_;  // of the latest piece
  Clock::time_point moved_{};
};

}  // namespace remuda
