// The records that the pool and its workers exchange: commands, results, flags.
//
// A command names the row that its result goes to: that single choice gives zero-copy frames, rollout
// storage and spares with no further machinery.
//
// Commands and results come in runs: one record for `count` neighbouring envs and as many neighbouring
// rows, so that 32 cheap envs cost two records and not 64.  A result's run is what the worker had done
// of a command when it published.  Every env of a command gives exactly one result.
//
// An env has a width: 1, or, of a vector env, as many neighbouring numbers and rows as it steps at once.  Every run is
// of whole envs, so what a vector env was told and what it answers is there for all of its rows or for none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace remuda {

enum class Op : std::uint32_t {
  kReset = 0,    // blob, if any: seed and options
  kStep = 1,     // action from the action columns, and from the blob for what has no column
  kObserve = 2,  // the current observation once more
  kMessage = 3,  // blob: a pickled request for the worker's Python side
  kClose = 4,
  kResetIntoRow = 5,  // an env made anew resets; the row's reward, flags and final observation stand
  kRebuild = 6,       // a message: makes an env anew; with a blob: makes another one beside it
  kPrepare = 7,       // a message: resets an env in advance; blob as for kReset. The next reset tells what it raised
};

// Whether it fills no row.
constexpr bool is_message(Op op) {
  return op == Op::kMessage || op == Op::kClose || op == Op::kRebuild || op == Op::kPrepare;
}

// What follows the end of an episode.
enum class Autoreset {
  kNextStep = 0,    // the next step resets instead
  kSameStep = 1,    // a reset in the same step
  kDisabled = 2,    // whatever the caller does
  kBackground = 3,  // a reset, whose result comes by itself
};

// Bits of Result::flags.
inline constexpr std::uint32_t kHasBlob = 1;      // a blob follows in the blob ring
inline constexpr std::uint32_t kOnSocket = 2;     // ... or on the socket, where it did not fit
inline constexpr std::uint32_t kIsMessage = 4;    // answers a message, fills no row
inline constexpr std::uint32_t kIsFailure = 8;    // the blob describes an exception
inline constexpr std::uint32_t kHasFinal = 16;    // the final-observation columns of the row are filled
inline constexpr std::uint32_t kHasNewKeys = 32;  // the blob's info has numeric keys without a column
inline constexpr std::uint32_t kRenewalDue = 64;  // the episode ended, and before the next one the env is to be renewed
inline constexpr std::uint32_t kGrown = 512;      // with kRenewalDue: its worker takes more memory than it is to
inline constexpr std::uint32_t kUndone = 256;  // it was not done: by kRenewalDue, or (kPrepare) for the env has raised
inline constexpr std::uint32_t kHasSpares =
    128;  // the first observation of the next episode is to come from another env

// `env` of a command that concerns the whole worker.
inline constexpr std::uint32_t kWholeWorker = 0xffffffff;

struct Command {
  Op op;                   //  0
  std::uint32_t env;       //  4  the first env, or kWholeWorker
  std::uint32_t row;       //  8  where its result goes; the other envs' follow
  std::uint32_t count;     // 12  of rows; one env's if there is a blob
  std::uint64_t sequence;  // 16  echoed by the results
  std::uint32_t flags;     // 24  kHasBlob, kOnSocket
  std::uint32_t action;    // 28  the row of its action; the other envs' follow
};
static_assert(sizeof(Command) == 32 && offsetof(Command, sequence) == 16);

struct Result {
  std::uint32_t env;       //  0  as in the command
  std::uint32_t row;       //  4
  std::uint32_t count;     //  8  of rows; one env's if any flag is set, 1 of a message
  std::uint32_t flags;     // 12
  std::uint64_t sequence;  // 16
  std::uint64_t begin_ns;  // 24  CLOCK_MONOTONIC, the same in every process of a machine
  std::uint64_t end_ns;    // 32
  Op op;                   // 40
  // Of the env's reset that belongs to it, be it a part of its step or made in advance; of a run the last one, if any.
  std::uint32_t reset_env;       // 44
  std::uint64_t reset_begin_ns;  // 48  0: there was none
  std::uint64_t reset_end_ns;    // 56
};
static_assert(sizeof(Result) == 64 && offsetof(Result, end_ns) == 32 && offsetof(Result, reset_end_ns) == 56);

}  // namespace remuda
