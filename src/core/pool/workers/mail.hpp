// Sends and receives messages that do not fit into the arena: over a worker's socket, or, for a worker in this process,
// over two queues.
//
// No function here runs Python code, so no signal handler can interrupt a message half-way.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/workers/transfers.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class Mail {
 public:
  using Arrival = MessageSocket::Arrival;

  // `queues`: for each worker a pair of `queue.SimpleQueue`, to the worker and from it; empty if the workers have
  // sockets.
  Mail(Transfers& transfers, const nb::sequence& queues);

  // Sends a worker a message, which is a list of bytes-like objects. If the socket takes only a part of it, `Transfers`
  // sends the rest later.
  void post(std::uint32_t worker, nb::handle parts);
  // Receives the next bytes of a worker's message. Once the message is complete, `parts` becomes a list of bytearrays.
  Arrival read(std::uint32_t worker, nb::object& parts);

 private:
  struct Queues {
    // `put`: the method of the queue to the worker; the others: methods of the queue from the worker.
    nb::object put, get, is_empty;
  };

  Transfers& transfers_;
  std::vector<nb::list> arriving_;  // For each worker, the parts of a message that is incomplete.
  std::vector<Queues> queues_;      // The queues of each worker; empty if the workers have sockets.
};

}  // namespace remuda
