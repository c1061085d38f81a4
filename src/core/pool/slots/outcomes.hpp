// The table of outcomes: what becomes of a slot's command and episode when its env cannot continue them.
//
// A fate is what has happened to the env. `Hub::settle` looks up the outcome, and the ledger applies it.
//
//   fate       command in flight                             outcome
//   ---------  --------------------------------------------  -------------------------------------
//   lost       any                                           drop
//   raised     any                                           fail
//   dying      any                                           resend
//   renewed,   observe                                       repeat the last observation
//   resumed    another                                       resend
//   ended      step                                          reset
//   failed     reset                                         resend; if reported: end the episode
//              reset into a row                              resend
//              observe of an episode that is over            repeat the last observation
//              step of an episode that is over, next-step    resend, because this step resets
//              another, same-step                            end the episode and reset
//              another                                       end the episode
//              none, and there was no result yet             nothing
//              none, and the episode is over, disabled       await a reset
//              none, and the episode is over                 nothing
//              none, same-step                               end the episode and reset, later
//              none                                          end the episode, later
#pragma once

#include <cstdint>
#include <optional>

#include "ipc/protocol.hpp"

namespace remuda {

enum class Fate : std::uint8_t {
  kLost,      // The env will never answer again, or nobody wants its answer.
  kRaised,    // The env raised, and the pool raises its failure.
  kDying,     // The env's worker is about to end. Its death decides.
  kRenewed,   // The env was closed for a renewal, and is built again.
  kEnded,     // The same, after the end of an episode, which is in the row. The reset into the row is missing.
  kResumed,   // The env failed, is built again, and plays its episode again up to the command.
  kFailed,    // The env failed and is built again.
  kReported,  // The same, in a reset whose faults the pool reports.
};

enum class Outcome : std::uint8_t {
  kNothing,           // The slot has no command, and no episode that could be cut off.
  kDrop,              // The command gets no result.
  kFail,              // The command gets no result, and its part receives the failure.
  kResend,            // The command is sent again, to the env that was rebuilt.
  kRepeatLast,        // The pool answers with the env's last observation.
  kEndEpisode,        // The pool answers with the end of the episode.
  kEndAndReset,       // The pool writes the end of the episode, and the rebuilt env resets into the same row.
  kReset,             // The row has the end of the episode, and the rebuilt env resets into it.
  kEndLater,          // The slot has no command. Its next step is answered as for `kEndEpisode`.
  kEndAndResetLater,  // The slot has no command. Its next step is answered as for `kEndAndReset`.
  kAwaitReset,        // The slot has no command. The caller must reset it before its next step.
};

// The part of a slot's state that the outcome depends on.
struct Interrupted {
  std::optional<Op> op;      // the command in flight; nullopt if there is none
  bool has_results = false;  // whether the env has had a result
  bool is_over = false;      // whether the last result ended the episode
};

constexpr Outcome outcome_of(Fate fate, const Interrupted& slot, Autoreset autoreset) {
  const bool in_same_step = autoreset == Autoreset::kSameStep;
  switch (fate) {
    case Fate::kLost:
      return slot.op ? Outcome::kDrop : Outcome::kNothing;
    case Fate::kRaised:
      return slot.op ? Outcome::kFail : Outcome::kNothing;
    case Fate::kDying:
      return slot.op ? Outcome::kResend : Outcome::kNothing;
    case Fate::kRenewed:
    case Fate::kResumed:
      return !slot.op ? Outcome::kNothing : slot.op == Op::kObserve ? Outcome::kRepeatLast : Outcome::kResend;
    case Fate::kEnded:
      return slot.op == Op::kStep ? Outcome::kReset : Outcome::kNothing;
    case Fate::kFailed:
    case Fate::kReported:
      break;
  }
  if (!slot.op) {
    if (!slot.has_results) return Outcome::kNothing;
    if (slot.is_over) return autoreset == Autoreset::kDisabled ? Outcome::kAwaitReset : Outcome::kNothing;
    return in_same_step ? Outcome::kEndAndResetLater : Outcome::kEndLater;
  }
  if (slot.op == Op::kReset && fate == Fate::kReported) return Outcome::kEndEpisode;
  if (slot.op == Op::kReset || slot.op == Op::kResetIntoRow) return Outcome::kResend;
  if (slot.op == Op::kObserve && slot.is_over) return Outcome::kRepeatLast;
  if (slot.is_over && autoreset == Autoreset::kNextStep) return Outcome::kResend;
  return in_same_step ? Outcome::kEndAndReset : Outcome::kEndEpisode;
}

// Whether the pool makes a row for this outcome, and which: see `Callbacks::make_rows`.
enum class PoolRow : std::uint8_t { kNone, kLast, kTerminal };

constexpr PoolRow row_for(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRepeatLast:
    case Outcome::kEndEpisode:
    case Outcome::kEndLater:
      return PoolRow::kLast;
    case Outcome::kEndAndReset:
    case Outcome::kEndAndResetLater:
      return PoolRow::kTerminal;
    default:
      return PoolRow::kNone;
  }
}

}  // namespace remuda
