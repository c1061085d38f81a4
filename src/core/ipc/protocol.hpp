// The records that the pool and its workers exchange: commands, results, flags.
//
// A command names the row that its result goes to. That choice alone provides zero-copy frames, rollout storage and
// spares.
//
// Commands and results come in runs: one record for `count` neighbouring envs and as many neighbouring rows, so that 32
// cheap envs cost two records and not 64. A run of results covers the part of a command that the worker had done when
// it published. Every env of a command gives exactly one result.
//
// An env has a width: 1, or, for a vector env, the number of neighbouring env numbers and rows that it steps at once.
// Every run consists of whole envs, so a command or result of a vector env is visible for all of its rows or for none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace remuda {

enum class Op : std::uint32_t {
  kReset = 0,    // seed and options are in the blob, if there is one
  kStep = 1,     // the action is in the action columns; the blob has the parts without a column
  kObserve = 2,  // returns the current observation again
  kMessage = 3,  // the blob is a pickled request for the worker's Python side
  kClose = 4,
  kResetIntoRow = 5,  // resets to complete the row of another env's step; reward, flags, final observation stay
  kRebuild = 6,       // a message: rebuilds an env; with a blob, builds another env beside it
  // A message: resets an env in advance, with a blob as for kReset. The next reset reports the exception, if any.
  kPrepare = 7,
};

// Whether the op fills no row.
constexpr bool is_message(Op op) {
  return op == Op::kMessage || op == Op::kClose || op == Op::kRebuild || op == Op::kPrepare;
}

// The reset that follows the end of an episode.
enum class Autoreset {
  kNextStep = 0,    // the next step resets instead
  kSameStep = 1,    // a reset in the same step
  kDisabled = 2,    // the caller resets
  kBackground = 3,  // a reset; its result arrives without a command
};

// Bits of Result::flags.
inline constexpr std::uint32_t kHasBlob = 1;      // a blob follows in the blob ring
inline constexpr std::uint32_t kOnSocket = 2;     // a blob follows on the socket, because it did not fit into the ring
inline constexpr std::uint32_t kIsMessage = 4;    // the response to a message; fills no row
inline constexpr std::uint32_t kIsFailure = 8;    // the blob describes an exception
inline constexpr std::uint32_t kHasFinal = 16;    // the final-observation columns of the row are filled
inline constexpr std::uint32_t kHasNewKeys = 32;  // the blob's info has numeric keys without a column
// The env is due for renewal before its next episode.
inline constexpr std::uint32_t kRenewalDue = 64;
inline constexpr std::uint32_t kGrown = 512;  // with kRenewalDue: the worker exceeds its memory limit
// The command was not carried out: because of kRenewalDue or, with kPrepare, because the env raised.
inline constexpr std::uint32_t kUndone = 256;
// Another env provides the first observation of the next episode.
inline constexpr std::uint32_t kHasSpares = 128;

// The value of `env` in a command that concerns the whole worker.
inline constexpr std::uint32_t kWholeWorker = 0xffffffff;

struct Command {
  Op op;                   //  0
  std::uint32_t env;       //  4  the first env, or kWholeWorker
  std::uint32_t row;       //  8  the row of its result; the other envs' rows follow
  std::uint32_t count;     // 12  rows; those of one env if there is a blob
  std::uint64_t sequence;  // 16  echoed by the results
  std::uint32_t flags;     // 24  kHasBlob, kOnSocket
  std::uint32_t action;    // 28  the row of its action; the other envs' rows follow
};
static_assert(sizeof(Command) == 32 && offsetof(Command, sequence) == 16);

struct Result {
  std::uint32_t env;       //  0  as in the command
  std::uint32_t row;       //  4
  std::uint32_t count;     //  8  rows; those of one env if any flag is set, 1 for a message
  std::uint32_t flags;     // 12
  std::uint64_t sequence;  // 16
  std::uint64_t begin_ns;  // 24  CLOCK_MONOTONIC, shared by all processes of a machine
  std::uint64_t end_ns;    // 32
  Op op;                   // 40
  // The reset that this result includes, made within the step or in advance; for a run, the last one.
  std::uint32_t reset_env;       // 44
  std::uint64_t reset_begin_ns;  // 48  0: the result includes no reset
  std::uint64_t reset_end_ns;    // 56
};
static_assert(sizeof(Result) == 64 && offsetof(Result, end_ns) == 32 && offsetof(Result, reset_end_ns) == 56);

}  // namespace remuda
