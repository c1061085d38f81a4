// Sends commands and messages to the workers, through their rings, or through their sockets if they are too large.
//
// Commands are written first and published later: once a worker has its turn (turns.hpp), all of its commands are
// published with one ring of its bell.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ipc/clock.hpp"
#include "pool/workers/deadlines.hpp"
#include "pool/workers/mail.hpp"
#include "pool/workers/port.hpp"
#include "pool/workers/turns.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class Outbox {
 public:
  // `max_running`: the number of workers that may have commands at once.
  Outbox(std::vector<Port>& ports, Mail& mail, const Deadlines& deadlines, std::uint32_t max_running)
      : ports_(ports),
        mail_(mail),
        deadlines_(deadlines),
        turns_(static_cast<std::uint32_t>(ports.size()), max_running) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Returns the number of the next command or message. Both are counted together, from 1.
  std::uint64_t next_sequence() { return ++sequence_; }
  std::uint64_t last_sequence() const { return sequence_; }

  // Writes a command or message. `parts`: its data as bytes-like objects, or None.
  void push(std::uint32_t worker, Command command, nb::handle parts);
  // Makes everything that was written visible to the worker, if the worker gets a turn. If `at_once`, it gets one even
  // beyond the limit.
  void publish(std::uint32_t worker, TimeOfCall& now, bool at_once = false);
  void publish_all(TimeOfCall& now) {
    for (std::uint32_t worker = 0; worker < ports_.size(); ++worker) publish(worker, now);
  }
  // Ends the turn of a worker that has nothing left to do. The worker that has waited longest gets the next turn.
  void finish_turn(std::uint32_t worker);
  bool has_turn(std::uint32_t worker) const { return turns_.has(worker); }
  bool any_waits_for_turn() const { return turns_.any_waiting(); }
  // Returns whether anything was published since the last call of this function.
  bool take_published() { return std::exchange(has_published_, false); }

 private:
  std::vector<Port>& ports_;
  Mail& mail_;
  const Deadlines& deadlines_;
  Turns turns_;
  std::uint64_t sequence_ = 0;
  bool has_published_ = false;
};

}  // namespace remuda
