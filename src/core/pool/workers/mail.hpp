// Sends and receives messages that do not fit into the arena: over the workers' sockets, or, for workers in this
// process, over two queues each.
//
// No function here runs Python code, so no signal handler can interrupt a message half-way.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ipc/doorbell.hpp"
#include "pool/workers/message_socket.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class Mail {
 public:
  using Arrival = MessageSocket::Arrival;

  // `queues`: for each worker a pair of `queue.SimpleQueue`, to the worker and from it; empty if the workers have
  // sockets.
  Mail(std::uint32_t workers, const nb::sequence& queues);

  const MessageSocket& socket(std::uint32_t worker) const { return sockets_[worker]; }
  // These call the functions of the same names of the worker's `MessageSocket`.
  void open(std::uint32_t worker, int fd) {
    change(worker, [fd](MessageSocket& socket) { socket.open(fd); });
  }
  // Drops the messages of a dead worker, and keeps new ones for its successor.
  void hold(std::uint32_t worker);

  // Sends a worker a message, which is a list of bytes-like objects. If the socket takes only a part of it, `write_on`
  // sends the rest later.
  void post(std::uint32_t worker, nb::handle parts);
  // Sends more of each message that is not fully sent yet.
  void write_on() {
    for (std::uint32_t worker = 0; under_way_ != 0 && worker < sockets_.size(); ++worker)
      change(worker, &MessageSocket::write_on);
  }
  // Receives the next bytes of a worker's message. Once the message is complete, `parts` becomes a list of bytearrays.
  Arrival read(std::uint32_t worker, nb::object& parts);

  // The sockets of the messages that are under way. Empty if none of them has progressed in the last two milliseconds:
  // such messages are only checked once per `Watch::kInterval`.
  struct UnderWay {
    struct Awaited {
      int fd;
      bool is_read, is_written;
    };
    std::vector<Awaited> sockets;

    // Sleeps until a message can continue, but at most for a millisecond. Returns false, without sleeping, if there are
    // no sockets. The caller need not have the turn.
    bool sleep(Nanoseconds limit) const;
  };
  UnderWay under_way() const;

  // See `Collected`. The messages that are arriving consist of bytes.
  template <class Act>
  void each_reference(Act act) {
    for (Queues& queues : queues_)
      for (nb::object* one : {&queues.put, &queues.get, &queues.is_empty, &queues.both}) act(*one);
  }

 private:
  struct Queues {
    // `put`: the method of the queue to the worker; the others: methods of the queue from the worker.
    nb::object put, get, is_empty;
    nb::object both;  // the pair of queues
  };

  template <class Act>
  void change(std::uint32_t worker, Act act) {
    MessageSocket& socket = sockets_[worker];
    under_way_ -= socket.is_under_way();
    std::invoke(act, socket);
    under_way_ += socket.is_under_way();
  }

  std::vector<MessageSocket> sockets_;  // The socket of each worker.
  std::uint32_t under_way_ = 0;         // The number of sockets with a message that is being received or sent.
  std::vector<nb::list> arriving_;      // For each worker, the parts of a message that is incomplete.
  std::vector<Queues> queues_;          // The queues of each worker; empty if the workers have sockets.
};

}  // namespace remuda
