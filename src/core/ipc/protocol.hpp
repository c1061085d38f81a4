// The records that the pool and its workers exchange: commands, results, flags.
//
// A command names the row that its result goes to. The pool chooses this row, which makes zero-copy frames, rollouts
// and spares possible.
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
  kReset = 0,    // The blob, if there is one, has the seed and options.
  kStep = 1,     // The action is in the action columns. The blob has the action's leaves without a column.
  kObserve = 2,  // Writes the env's last observation again.
  kMessage = 3,  // The blob is a pickled request for the worker's Python side.
  kClose = 4,
  // The env resets into a row that already has the end of another env's episode: reward, flags, final observation.
  kResetIntoRow = 5,
  // A message: rebuilds an env. If there is a blob, builds another env instead, which may replace this one later.
  kRebuild = 6,
  // A message: resets an env in advance. The blob has the seed and options, if any. If the env raises, its next reset
  // reports the exception.
  kPrepare = 7,
  // A message: plays the episode of a rebuilt env again, up to its last result that the pool has received.
  kResume = 8,
  kRepeat = 9,  // Not for workers: the pool answers with the env's last observation. It needs `Plan::keeps_last`.
};

// Whether the op is a message, which fills no row.
constexpr bool is_message(Op op) {
  return op == Op::kMessage || op == Op::kClose || op == Op::kRebuild || op == Op::kPrepare || op == Op::kResume;
}

// How an env resets after the end of an episode.
enum class Autoreset {
  kNextStep = 0,    // The next step resets the env instead of stepping it.
  kSameStep = 1,    // The step that ends the episode also resets the env.
  kDisabled = 2,    // The caller resets the env.
  kBackground = 3,  // The pool sends the reset itself, so the caller need not.
};

// These constants are bits of Result::flags. The first two are also bits of Command::flags.
inline constexpr std::uint32_t kHasBlob = 1;      // A blob follows in the blob ring.
inline constexpr std::uint32_t kOnSocket = 2;     // A blob follows on the socket, because it did not fit into the ring.
inline constexpr std::uint32_t kIsMessage = 4;    // The result answers a message and fills no row.
inline constexpr std::uint32_t kIsFailure = 8;    // The blob describes an exception.
inline constexpr std::uint32_t kHasFinal = 16;    // The final-observation columns of the row are filled.
inline constexpr std::uint32_t kHasNewKeys = 32;  // The blob has numbers or arrays of the info that could get a column.
// The env is due for renewal before its next episode.
inline constexpr std::uint32_t kRenewalDue = 64;
inline constexpr std::uint32_t kGrown = 512;  // With kRenewalDue: the process of the worker exceeds its memory limit.
// The command was not carried out, because renewal is due (kRenewalDue) or because the env raised (kPrepare).
inline constexpr std::uint32_t kUndone = 256;
// With kIsFailure: a shard on another machine answers with an error. The blob is the error, and that of an env's loss.
inline constexpr std::uint32_t kAbandoned = 1024;
// With kIsFailure: the command was not carried out, because the env's episode could not be played again.
inline constexpr std::uint32_t kNotResumed = 2048;
// The row lacks the first observation of the next episode, which a spare will write (same-step autoreset).
inline constexpr std::uint32_t kHasSpares = 128;

// The value of `env` in a command for the whole worker.
inline constexpr std::uint32_t kWholeWorker = 0xffffffff;

struct Command {
  // Each comment begins with the field's offset in bytes.
  Op op;                   //  0
  std::uint32_t env;       // 4: the first env of the run, or kWholeWorker.
  std::uint32_t row;       // 8: the row for the first env's result; the rows for the other envs' results follow it.
  std::uint32_t count;     // 12: the number of rows; if there is a blob, all rows belong to one env.
  std::uint64_t sequence;  // 16: the number of the command; its results have the same number.
  std::uint32_t flags;     // 24: kHasBlob or kOnSocket.
  std::uint32_t action;    // 28: the row of the first env's action; the rows of the other envs' actions follow it.
};
static_assert(sizeof(Command) == 32 && offsetof(Command, sequence) == 16);

struct Result {
  // Each comment begins with the field's offset in bytes.
  std::uint32_t env;       // 0: the first env of the run, or kWholeWorker.
  std::uint32_t row;       //  4
  std::uint32_t count;     // 8: the number of rows; if any flag is set, all rows belong to one env; 1 for a message.
  std::uint32_t flags;     // 12
  std::uint64_t sequence;  // 16
  std::uint64_t begin_ns;  // 24: in ns of CLOCK_MONOTONIC, which all processes of a machine share.
  std::uint64_t end_ns;    // 32
  Op op;                   // 40
  // The next three describe the reset that this result includes, made within the step or in advance. For a run they
  // describe its last reset.
  std::uint32_t reset_env;       // 44
  std::uint64_t reset_begin_ns;  // 48: 0 if the result includes no reset.
  std::uint64_t reset_end_ns;    // 56
};
static_assert(sizeof(Result) == 64 && offsetof(Result, end_ns) == 32 && offsetof(Result, reset_end_ns) == 56);

}  // namespace remuda
