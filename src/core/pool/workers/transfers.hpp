// The sockets of all workers, and the wait for messages that are under way.
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
  // Each of the next functions calls the one of the same name in the worker's `MessageSocket`.
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

  // Sends more of each message that is not fully sent yet.
  void write_on() {
    for (std::uint32_t worker = 0; writing_ != 0 && worker < sockets_.size(); ++worker)
      change(worker, &MessageSocket::write_on);
  }
  // The sockets of the messages that are under way. Empty if none of them has progressed in the last two milliseconds:
  // such messages are only checked once per `Watch::kInterval`.
  class UnderWay {
   public:
    // Sleeps until a message can continue, but at most for a millisecond. Returns false, without sleeping, if there are
    // no sockets. The caller need not have the turn.
    bool sleep(Nanoseconds limit) const;

   private:
    friend class Transfers;
    struct Awaited {
      int fd;
      bool is_read, is_written;
    };
    std::vector<Awaited> sockets_;
  };
  UnderWay under_way() const;

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

  std::vector<MessageSocket> sockets_;  // The socket of each worker.
  // The numbers of sockets on which a message is being received, and being sent
  std::uint32_t reading_ = 0, writing_ = 0;
};

}  // namespace remuda
