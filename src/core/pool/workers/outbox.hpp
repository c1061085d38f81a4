// What goes out to the workers: commands and messages, through their rings, or where they are too large for these
// through their sockets; and when their bells are rung for it.
//
// Commands are written first and published then, all of a worker's with one ring of its bell, when its turn has come.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/time_of_call.hpp"
#include "pool/workers/deadlines.hpp"
#include "pool/workers/mail.hpp"
#include "pool/workers/port.hpp"
#include "pool/workers/turns.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class Outbox {
 public:
  // `max_running`: how many workers may have commands at once.
  Outbox(std::vector<Port>& ports, Mail& mail, const Deadlines& deadlines, std::uint32_t max_running)
      : ports_(ports),
        mail_(mail),
        deadlines_(deadlines),
        turns_(static_cast<std::uint32_t>(ports.size()), max_running) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // The number of what is written next, one command or message: they count together, from 1.
  std::uint64_t next_sequence() { return ++sequence_; }
  std::uint64_t last_sequence() const { return sequence_; }

  // Writes a command or message.  `parts`: None, or what goes with it.
  void push(std::uint32_t worker, Command command, nb::handle parts);
  // Lets the worker see what was written for it, if its turn has come; `at_once`: whoever's turn it is.
  void publish(std::uint32_t worker, TimeOfCall& now, bool at_once = false);
  void publish_all(TimeOfCall& now) {
    for (std::uint32_t worker = 0; worker < ports_.size(); ++worker) publish(worker, now);
  }
  // The worker has nothing left to do: whoever has waited longest is next.
  void finish_turn(std::uint32_t worker);
  bool has_turn(std::uint32_t worker) const { return turns_.has(worker); }
  bool any_waits_for_turn() const { return turns_.any_waiting(); }

 private:
  std::vector<Port>& ports_;
  Mail& mail_;
  const Deadlines& deadlines_;
  Turns turns_;
  std::uint64_t sequence_ = 0;
};

}  // namespace remuda
