// The worker's end of a port whose envs run on another machine. Python takes the commands, writes the rows of their
// results, and answers. All of this happens in the pool's thread, so no bell is rung.
//
// A signal handler may raise between any two lines of Python. Therefore `take` adds a command to a list of the caller
// in the same step in which it leaves the ring, and an answer that was given before is ignored. The successor of a
// worker gets another port.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python/numpy_api.hpp"
#include "shm/plan.hpp"
#include "worker/worker_port.hpp"
#include "worker/worker_spec.hpp"

namespace remuda {

class RemotePort {
 public:
  // `envs`: the number of envs of the worker. `receive`, `send`: functions in C that take a message from the pool that
  // did not fit into the ring, and that give the pool such a message.
  RemotePort(std::shared_ptr<Arena> arena, const Plan& plan, const WorkerSpec& spec, std::uint32_t envs,
             nb::object receive, nb::object send);

  // Moves the commands in the ring to a list: (op, env, count, row, action row, sequence, parts or None) each. The row
  // of a message is the worker.
  void take(nb::list commands);
  // Answers the commands of `count` neighbouring envs whose rows are written. `parts`: what has no column, as a list of
  // bytes-like objects, as a tuple that the pool reads as it is, or None; for one env only, as are `flags`. `until`:
  // the last command that may be answered; an answer that is given twice must not answer a later command.
  void answer(std::uint32_t env, std::uint32_t count, std::uint32_t flags, nb::handle parts, std::uint64_t until);
  // Answers a message.
  void answer_message(std::uint64_t sequence, std::uint32_t flags, nb::handle parts);

 private:
  // A command without an answer.
  struct Pending {
    std::uint64_t sequence = 0;  // 0: none
    std::uint64_t begin_ns = 0;
    std::uint32_t env = 0, row = 0;
    Op op = Op::kStep;
  };

  void post(Pending& pending, std::uint32_t count, std::uint32_t flags, nb::handle parts);

  std::shared_ptr<Arena> arena_;
  const Plan plan_;
  const WorkerSpec spec_;
  nb::object receive_, send_;
  WorkerPort port_;
  std::vector<Pending> envs_;      // by env, from the worker's first
  std::vector<Pending> messages_;  // in the order of sending
};

}  // namespace remuda
