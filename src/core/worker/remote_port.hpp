// The worker's end of its rings, if its envs run on another machine. Python takes the commands, writes the rows of
// their results, and answers the commands. One thread at a time uses a port. The successor of a worker gets another
// port.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python/numpy_api.hpp"
#include "shm/plan.hpp"
#include "worker/worker_port.hpp"

namespace remuda {

class RemotePort {
 public:
  // `envs`: the number of envs of the worker. `receive`, `send`: functions in C for messages that do not fit into the
  // ring. `receive` returns a message from the pool, and `send` sends a message to the pool.
  RemotePort(std::shared_ptr<Arena> arena, const Plan& plan, const WorkerSpec& spec, std::uint32_t envs,
             nb::object receive, nb::object send);

  bool has_command() const { return port_.has_command(); }
  // Moves the commands from the ring to a list, each as (op, env, count, row, action row, sequence, parts or None). A
  // message has the worker's index in place of the row.
  void take(nb::list commands);
  // Answers the commands of `count` neighbouring envs, after their rows were written. `parts`: the data without a
  // column, as a list of bytes-like objects or as a tuple, which `send` passes on as it is; or None. Only an answer for
  // one env may have `parts` and `flags`. Ignores envs without a command.
  void answer(std::uint32_t env, std::uint32_t count, std::uint32_t flags, nb::handle parts);
  // Answers the message with this sequence, if this worker has it.
  void answer_message(std::uint64_t sequence, std::uint32_t flags, nb::handle parts);
  // Counts a log record, which the supervisor is to emit. Called before the results that belong to the record.
  void note_record();

 private:
  // A command or message that has no answer yet.
  struct Pending {
    std::uint64_t sequence = 0;  // 0: there is no such command
    std::uint64_t begin_ns = 0;
    std::uint32_t env = 0, row = 0;
    Op op = Op::kStep;
  };

  void note_task();
  void post(Pending& pending, std::uint32_t count, std::uint32_t flags, nb::handle parts);

  std::shared_ptr<Arena> arena_;
  const Plan plan_;
  const WorkerSpec spec_;
  nb::object receive_, send_;
  WorkerPort port_;
  Meter& meter_;
  std::vector<Pending> envs_;      // The pending command of each env of the worker.
  std::vector<Pending> messages_;  // The pending messages, in the order of sending.
};

}  // namespace remuda
