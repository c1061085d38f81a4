// Sends and receives messages that do not fit into the arena: over a worker's socket, or over two queues if the worker
// belongs to this process.
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

  // Sends a worker a message of bytes-like objects, or the first bytes of it.
  void post(std::uint32_t worker, nb::handle parts);
  // Receives the next bytes of a worker's message. Once the message is complete, `parts` becomes a list of bytearrays.
  Arrival read(std::uint32_t worker, nb::object& parts);

 private:
  struct Queues {
    nb::object put, get, is_empty;  // `put`: to the worker; `get`, `is_empty`: from it
  };

  Transfers& transfers_;
  std::vector<nb::list> arriving_;  // by worker: the parts of an incomplete message
  std::vector<Queues> queues_;      // by worker; empty if the workers have sockets
};

}  // namespace remuda
