// What becomes of a slot whose env failed: of its command, and of an episode that was cut off between two commands.
//
// The command of an orphaned slot, to which no worker will answer any more, is
//
//   dropped             it has no result, and nobody is told
//   failed              it has no result: the failure itself is what its part receives
//   sent once more      to the env that was built anew
//   answered            with a result that the pool makes: the last observation once more, or the end of the episode
//   reset into the row  the end of the episode and the first observation of the next one make one result
//
// An episode that was cut off while nothing was in flight ends with the answer to the slot's next command: `defer_end`
// now, `deliver_end` then.
//
// A slot is named by the first of those of its env, and what becomes of it becomes of all of them.
//
// It moves slots from state to state and fills rows; whoever asks sends what is to be sent, and keeps what belongs to a
// result beside its row.
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
    kSend,        // its command, as `Slots` has it by now, is to be sent
    kAwaitSpare,  // it has asked for a spare, which is to reset into its row
  };

  // `width`: of each env.
  Resolution(Slots& slots, Seating& seating, LastResults& last_results, Parts& parts, std::uint32_t width)
      : slots_(slots), seating_(seating), last_results_(last_results), parts_(parts), width_(width) {}

  // -- of an orphaned slot -----------------------------------------------------------------------------------

  void drop(std::uint32_t slot);
  void fail(std::uint32_t slot);
  void resend(std::uint32_t slot);  // the caller sends it
  void repeat_last(std::uint32_t slot);
  void end_episode(std::uint32_t slot);
  // `is_complete`: reward, flags and terminal observation are in the row; else they are written as `end_episode` does,
  // and where there are spares one of them resets, for nobody waits for the env that is built anew.
  Next reset_into_row(std::uint32_t slot, bool is_complete);
  // A slot in flight, or orphaned, whose row a spare is to complete.
  void await_spare(std::uint32_t slot);

  // -- of a slot that is idle, or ready ----------------------------------------------------------------------

  // Its next step or observe is answered by `end_episode`, or by `reset_into_row`.  False for a slot that awaits a
  // spare, whose episode has ended.
  bool defer_end(std::uint32_t slot, bool into_reset);
  // Its next command was sent, as number `sequence`: answers it, where that tells of the end.  None: there is nothing
  // to tell, or a reset, which ends the episode anyway.
  std::optional<Next> deliver_end(std::uint32_t slot, std::uint64_t sequence);
  // Its next command was to observe what only the pool knows.
  void answer_observe(std::uint32_t slot);

 private:
  // Calls `act` with each slot of the env.
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
