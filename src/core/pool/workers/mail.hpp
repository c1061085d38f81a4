// Messages that do not fit into the arena: over a worker's socket, or, if the worker belongs to this process, over two
// queues.
//
// Nothing here runs Python code, so no signal handler can come between two steps of it.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/workers/transfers.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class Mail {
 public:
  using Arrival = MessageSocket::Arrival;

  // `queues`: for each worker a pair of `queue.SimpleQueue`, to it and from it; empty: the workers have sockets.
  Mail(Transfers& transfers, const nb::sequence& queues);

  // Sends a worker a message of bytes-like objects, or begins to.
  void post(std::uint32_t worker, nb::handle parts);
  // Receives the next message of a worker, or goes on with that: `parts` becomes a list of bytearrays, once it is
  // whole.
  Arrival read(std::uint32_t worker, nb::object& parts);

 private:
  struct Queues {
    nb::object put, get, is_empty;  // to the worker; from it
  };

  Transfers& transfers_;
  std::vector<nb::list> arriving_;  // by worker: the parts of the message that is being received
  std::vector<Queues> queues_;      // by worker; empty: they have sockets
};

}  // namespace remuda
