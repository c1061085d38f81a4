// Resolves the slots of an env that failed: the command in flight, or an episode that was cut off between two commands.
//
// The command of an orphaned slot will not be answered by a worker. It is
//
//   dropped             it has no result, and no failure is raised
//   failed              it has no result: its part receives the failure
//   resent              to the env that was rebuilt
//   answered            with a result that the pool makes: the last observation again, or the end of the episode
//   reset into the row  the end of the episode and the first observation of the next one make one result
//
// An episode that was cut off while no command was in flight ends with the answer to the slot's next command:
// `defer_end` now, `deliver_end` then.
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
    kAnswered,    // the slot is ready
    kSend,        // the caller must send the command that `Slots` has now
    kAwaitSpare,  // the slot is queued for a spare, which will reset into its row
  };

  // `width`: the number of slots of each env.
  Resolution(Slots& slots, Seating& seating, LastResults& last_results, Parts& parts, std::uint32_t width)
      : slots_(slots), seating_(seating), last_results_(last_results), parts_(parts), width_(width) {}

  // -- an orphaned slot --------------------------------------------------------------------------------------

  void drop(std::uint32_t slot);
  void fail(std::uint32_t slot);
  void resend(std::uint32_t slot);  // the caller sends it
  void repeat_last(std::uint32_t slot);
  void end_episode(std::uint32_t slot);
  // `is_complete`: the row already has its reward, flags and terminal observation. Otherwise this function writes them
  // as the end of the episode. If the pool has spares, one of them resets then, because a rebuild would take longer.
  Next reset_into_row(std::uint32_t slot, bool is_complete);
  // Lets a spare complete the row of a slot that is in flight or orphaned.
  void await_spare(std::uint32_t slot);

  // -- a slot that is idle or ready --------------------------------------------------------------------------

  // Lets `end_episode` or `reset_into_row` answer the next step or observe of the slot. Returns false for a slot that
  // awaits a spare, because its episode has ended already.
  bool defer_end(std::uint32_t slot, bool into_reset);
  // Ends the episode with the answer to the slot's next command, which was sent as number `sequence`. Returns None if
  // this command is a reset, which ends the episode anyway.
  std::optional<Next> deliver_end(std::uint32_t slot, std::uint64_t sequence);
  // Answers an observe with the last observation, which only the pool has.
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
