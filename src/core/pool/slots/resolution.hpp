// Decides the outcome for the slots of an env that failed: for their command in flight, or for an episode that was cut
// off between two commands.
//
// No worker will answer the command of an orphaned slot. Such a command is
//
//   dropped             without a result or a failure
//   failed              without a result; its part receives the failure
//   resent              to the env that was rebuilt
//   answered            with a result that the pool makes: the last observation again, or the end of the episode
//   reset into the row  which makes one result of the episode's end and the next episode's first observation
//
// An episode that was cut off while no command was in flight ends with the answer to the slot's next command:
// `defer_end` notes this, and `deliver_end` gives the answer.
//
// Every method takes the first slot of an env and applies to all slots of this env.
//
// This class changes the states of slots and fills rows. Its caller sends the commands that remain to be sent, and
// keeps the Python objects that belong to a result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pool/slots/last_results.hpp"
#include "pool/slots/parts.hpp"
#include "pool/slots/seating.hpp"
#include "pool/slots/slots.hpp"

namespace remuda {

class Resolution {
 public:
  enum class Next {
    kAnswered,    // The slot is ready.
    kSend,        // The caller must send the command that the slot now has.
    kAwaitSpare,  // The slot waits for a spare, which will reset into the slot's row.
  };

  // `width`: the number of slots of each env.
  Resolution(Slots& slots, Seating& seating, LastResults& last_results, Parts& parts, std::uint32_t width)
      : slots_(slots), seating_(seating), last_results_(last_results), parts_(parts), width_(width) {}

  // -- slots that are orphaned ------------------------------------------------------------------------------

  void drop(std::uint32_t slot);
  void fail(std::uint32_t slot);
  void resend(std::uint32_t slot);  // The caller must then send the command.
  void repeat_last(std::uint32_t slot);
  void end_episode(std::uint32_t slot);
  // Makes an env reset into the slot's row. `is_complete`: the row already has its reward, flags and terminal
  // observation. If it does not, this function writes them as the end of the episode. Then, if the pool has spares, one
  // of them resets, because rebuilding the failed env would take longer.
  Next reset_into_row(std::uint32_t slot, bool is_complete);
  // Queues a slot that is in flight or orphaned for a spare, which will complete its row.
  void await_spare(std::uint32_t slot);

  // -- slots that are idle or ready --------------------------------------------------------------------------

  // Notes that the episode was cut off. Its end (`end_episode`, or `reset_into_row` if `into_reset`) then answers the
  // slot's next step or observe. Returns false for a slot that waits for a spare, because its episode has ended
  // already.
  bool defer_end(std::uint32_t slot, bool into_reset);
  // Ends the episode that was cut off, as the answer to the slot's next command, which has the number `sequence`.
  // Returns nullopt if this command is a reset, which ends the episode anyway.
  std::optional<Next> deliver_end(std::uint32_t slot, std::uint64_t sequence);
  // Answers an observe with the env's last observation. Called if the env was rebuilt and has not reset since.
  void answer_observe(std::uint32_t slot);

 private:
  template <class Act>
  void each(std::uint32_t first, Act act) {
    for (std::uint32_t slot = first; slot < first + width_; ++slot) act(slot);
  }
  void finish(std::uint32_t first);

  Slots& slots_;
  Seating& seating_;
  LastResults& last_results_;
  Parts& parts_;
  const std::uint32_t width_;
};

}  // namespace remuda
