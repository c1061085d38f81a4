// The sockets of all workers, and the wait for those on which a message is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ipc/doorbell.hpp"
#include "pool/workers/message_socket.hpp"

namespace remuda {

class Transfers {
 public:
  explicit Transfers(std::uint32_t workers) : sockets_(workers) {}

  const MessageSocket& operator[](std::uint32_t worker) const { return sockets_[worker]; }
  // As the functions of the same names of a worker's `MessageSocket`.
  void open(std::uint32_t worker, int fd) {
    change(worker, [fd](MessageSocket& socket) { socket.open(fd); });
  }
  void hold(std::uint32_t worker) { change(worker, &MessageSocket::hold); }
  void post(std::uint32_t worker, std::span<const Bytes> parts) {
    change(worker, [parts](MessageSocket& socket) { socket.post(parts); });
  }
  MessageSocket::Arrival read(std::uint32_t worker, const MessageSocket::MakePart& make_part) {
    MessageSocket::Arrival arrival;
    change(worker, [&](MessageSocket& socket) { arrival = socket.read(make_part); });
    return arrival;
  }

  // Goes on with sending each message that is incomplete.
  void write_on() {
    for (std::uint32_t worker = 0; writing_ != 0 && worker < sockets_.size(); ++worker)
      change(worker, &MessageSocket::write_on);
  }
  // Sleeps until a message can go on, or a millisecond.  False, without having slept, if no message is under way or has
  // moved in the last two: these are looked at as often as everything else that rings no bell.
  bool sleep(Nanoseconds limit) const;

 private:
  template <class Act>
  void change(std::uint32_t worker, Act act) {
    MessageSocket& socket = sockets_[worker];
    reading_ -= socket.is_reading();
    writing_ -= socket.is_writing();
    std::invoke(act, socket);
    reading_ += socket.is_reading();
    writing_ += socket.is_writing();
  }

  std::vector<MessageSocket> sockets_;       // by worker
  std::uint32_t reading_ = 0, writing_ = 0;  // the numbers of those that are
};

}  // namespace remuda
