// The layout of the arena. The offsets are computed, never sent: the pool and its workers compute them with
// `lay_out` from the same few numbers.
//
//   0        ArenaHeader
//   64       Bell                 the pool waits here; every worker rings it
//   192      Records              the number of log records and warnings of workers
//   256      SharedCores          which threads may spin
//   320      worker 0             Bell | Meter | command ring | result ring | blobs in | blobs out
//            worker 1 ...         (each starts on a cache line of its own)
//            progress             one line per env
//            figures              of each env | of each worker | of the caller: see figures.hpp
//            action columns       one row per slot, then the rows of rollouts
//            columns              one row per slot and frame: row = frame * slots + the slot's position
//                                 then, if faults are restarted or envs renewed, two kept rows per env
//                                 then the rows of rollouts
//            log                  headers | beginnings | kinds | objects | action columns, if faults are recorded;
//                                 to resume episodes, also places and digests, before the action columns
//
// A slot's position is its number, unless the pool is split: then the rows of each part are contiguous. There are as
// many envs as slots, plus the spares. Progress and logs belong to envs, not to slots.
//
// Columns are arrays of rows (never rows of columns), so that a frame of a column is a contiguous (slots, ...) array,
// and consecutive frames are a (frames, slots, ...) array. Frame 0 is the scratch frame: it takes the results of
// commands that went to some of the slots only.
//
// The last rows of each column are for rollouts (pool/rollouts/rollout_store.hpp), as many as the machine could ever
// hold. They are addresses without memory until a rollout takes them. So a row never moves, and code that writes rows
// does not depend on rollouts.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/protocol.hpp"
#include "ipc/ring.hpp"
#include "ipc/shared_cores.hpp"
#include "shm/arena.hpp"
#include "shm/figures.hpp"
#include "shm/meter.hpp"
#include "shm/progress.hpp"

namespace remuda {

// The number of log records and warnings that all workers have sent to the pool, or are about to send. A worker counts
// a record before it publishes the result of the command that caused the record, so a reader of the result sees the
// count ("publish", ring.hpp). The count orders nothing else.
struct Records {
  alignas(64) std::atomic<std::uint32_t> sent;
};
static_assert(sizeof(Records) == 64);

// The header of an env's log, see episode_log.hpp. Only the env's worker writes it.
struct LogHeader {
  alignas(64) std::atomic<std::uint64_t> entries;  // The number of entries so far.
  std::atomic<std::uint64_t> begun;                // The number of resets so far.
  std::atomic<std::uint64_t> calls;                // The number of calls since the env was created.
  std::atomic<std::uint64_t> object_bytes;         // The bytes used by the parts of actions without a column.
};
static_assert(sizeof(LogHeader) == 64);

struct LogBeginning {
  // The number of beginnings (see episode_log.hpp) that are kept for each env.
  static constexpr std::uint32_t kPlaces = 5;

  // The number of the log entry that this beginning belongs to, plus 1; 0: the place is empty.
  std::atomic<std::uint64_t> entry;
  std::atomic<std::uint32_t> size;
  std::byte text[16372];
};
static_assert(sizeof(LogBeginning) == 16384);

// Where the episode of an env stands in its log, see episode_log.hpp. The env's worker writes it, and the pool when the
// worker is dead, or when the env has failed.
struct EpisodePlace {
  std::uint64_t entries = 0;   // The number of entries in the log.
  std::uint64_t begun = 0;     // The number of resets in the log.
  std::uint64_t first = 0;     // The entry of the reset that began the episode, plus 1; 0: no result has reported one.
  std::uint64_t is_ahead = 0;  // Whether the log ends with a reset in advance, which no result has reported.
  std::uint64_t episodes = 0;  // `HostedEnv::episodes`.
  std::uint64_t touched = 0;   // `LogPlace::touched`.
  Progress::Counts counts = {};
};

struct LogPlace {
  // The sequence of the command that began at `before`, or `kAhead` during a reset in advance; 0: none.
  alignas(64) std::atomic<std::uint64_t> command;
  // Whether the pool has taken the env's interrupted command back, so that its next env resumes the episode.
  std::atomic<std::uint64_t> is_resuming;
  // The number of entries when a call that may have changed the env was made; kForGood: such a call, which is not
  // repeated for the next env; 0: none. See `EpisodeLog::note_call`.
  std::atomic<std::uint64_t> touched;
  // The number of entries when parts of actions were last discarded, because there was no room; 0: never.
  std::atomic<std::uint64_t> discarded;
  std::atomic<std::uint64_t> first, is_ahead, episodes;  // As in EpisodePlace.
  EpisodePlace before;
  Progress::Seeds seeds_before_ahead;  // The seed counts before the reset in advance.

  static constexpr std::uint64_t kAhead = ~std::uint64_t{0}, kForGood = ~std::uint64_t{0};
};

// The numbers of the fixed columns, and the types of their values. The columns of the observations' leaves follow, then
// the computed columns, then the columns of the terminal observations' leaves.
inline constexpr std::size_t kReward = 0;      // float64: one number, or the vector that the env has declared.
inline constexpr std::size_t kTerminated = 1;  // bool.
inline constexpr std::size_t kTruncated = 2;   // bool.
inline constexpr std::size_t kInfoMask = 3;    // uint64: a mask of the info columns that the row has filled.
inline constexpr std::size_t kInfo = 4;        // bytes with all info columns, see infos.py.
inline constexpr std::size_t kFirstLeaf = 5;
// The index of the first leaf in lists of columns that lack `kInfo`.
inline constexpr std::size_t kFirstLeafWithoutInfo = kFirstLeaf - 1;

struct Plan {
  std::uint32_t workers;
  std::uint32_t slots;
  std::uint32_t envs;           // One env for each slot, plus the spares.
  std::uint32_t frames;         // The frames, including the scratch frame.
  std::uint32_t ring_capacity;  // A power of two.
  std::uint64_t blob_bytes;
  std::vector<std::uint64_t> action_bytes;  // The bytes of one row of each action column.
  std::vector<std::uint64_t> column_bytes;  // The bytes of one row of each column.
  std::uint32_t width = 1;                  // The number of sub-envs of a vector env, see protocol.hpp; else 1.
  // Whether two more rows for each env keep its last result, for the case that its worker dies.
  bool keeps_last = false;
  std::uint32_t log_entries = 0;  // The capacity of each env's log; 0: no log.
  // The bytes in each env's log for the parts of actions without a column.
  std::uint64_t log_object_bytes = 0;
  bool resumes = false;  // Whether logs have what is needed to resume episodes.
  // The most rows that rollouts may use. They have no memory until a rollout takes them.
  std::uint32_t rollout_rows = 0;

  // `lay_out` computes the members from here on. They are offsets, except `bytes`, the size of the arena.
  std::vector<std::uint64_t> ports = {}, actions = {}, columns = {};
  std::uint64_t progress = 0;
  std::uint64_t env_figures = 0, worker_figures = 0, caller_figures = 0;
  std::uint64_t log_headers = 0, log_beginnings = 0, log_kinds = 0, log_objects = 0, log_places = 0, log_digests = 0;
  std::vector<std::uint64_t> log_actions = {};
  std::uint64_t bytes = 0;

  // `rows`: the number of rows of each column. `first_rollout_row`: the number of those rows that do not belong to
  // rollouts. `action_rows`: the number of rows of each action column.
  std::uint32_t rows() const { return first_rollout_row() + rollout_rows; }
  std::uint32_t first_rollout_row() const { return slots * frames + (keeps_last ? 2 * envs : 0); }
  std::uint32_t action_rows() const { return slots + rollout_rows; }

  std::uint64_t log_rows() const { return std::uint64_t{log_entries} * envs; }

  // Returns the row that keeps the n-th result of an env. An env's results use its two kept rows in turn, so that a
  // worker killed while it writes one leaves the previous result whole.
  std::uint32_t kept_row(std::uint32_t env, std::uint64_t n) const {
    return frames * slots + static_cast<std::uint32_t>(n & 1) * envs + env;
  }

  void lay_out() {
    std::uint64_t at = kCores + sizeof(SharedCores);
    auto place = [&](std::uint64_t size) {
      std::uint64_t offset = at;
      at = (at + size + 63) / 64 * 64;
      return offset;
    };
    const std::uint64_t port_bytes = sizeof(Bell) + sizeof(Meter) + ring_bytes<Command>(ring_capacity) +
                                     ring_bytes<Result>(ring_capacity) + 2 * (sizeof(BlobHeader) + blob_bytes);
    for (std::uint32_t w = 0; w < workers; ++w) ports.push_back(place(port_bytes));
    progress = place(sizeof(Progress) * envs);
    env_figures = place(sizeof(EnvFigures) * envs);
    worker_figures = place(sizeof(WorkerFigures) * workers);
    caller_figures = place(sizeof(CallerFigures));
    for (std::uint64_t size : action_bytes) actions.push_back(place(size * action_rows()));
    for (std::uint64_t size : column_bytes) columns.push_back(place(size * rows()));
    if (log_entries != 0) {
      log_headers = place(sizeof(LogHeader) * envs);
      log_beginnings = place(sizeof(LogBeginning) * LogBeginning::kPlaces * envs);
      log_kinds = place(log_rows());
      log_objects = place(log_object_bytes * envs);
      if (resumes) log_places = place(sizeof(LogPlace) * envs);
      if (resumes) log_digests = place(sizeof(std::uint64_t) * log_rows());
      for (std::uint64_t size : action_bytes) log_actions.push_back(place(size * log_rows()));
    }
    bytes = at;
  }

  // Returns the ranges that have memory from the start, in order: everything except the rows of rollouts. With
  // rollouts, info columns get their memory when they are assigned, because the bytes of each row depend on the sizes
  // of the columns.
  std::vector<ByteRange> reserved() const {
    std::vector<ByteRange> ranges;
    std::uint64_t from = 0;
    auto leave_out = [&](std::uint64_t begin, std::uint64_t end) {
      if (end == begin) return;
      ranges.push_back({from, begin - from});
      from = end;
    };
    for (std::size_t c = 0; c < actions.size(); ++c)
      leave_out(actions[c] + action_bytes[c] * slots, actions[c] + action_bytes[c] * action_rows());
    for (std::size_t c = 0; c < columns.size() && rollout_rows != 0; ++c)
      leave_out(columns[c] + (c == kInfo ? 0 : column_bytes[c] * first_rollout_row()),
                columns[c] + column_bytes[c] * rows());
    ranges.push_back({from, bytes - from});
    return ranges;
  }

  // The offsets of the pool's bell, of the records and of the shared cores; then the offsets of the parts of worker w's
  // port.
  static constexpr std::uint64_t kPoolBell = sizeof(ArenaHeader);
  static constexpr std::uint64_t kRecords = kPoolBell + sizeof(Bell);
  static constexpr std::uint64_t kCores = kRecords + sizeof(Records);
  std::uint64_t bell(std::uint32_t w) const { return ports[w]; }
  std::uint64_t meter(std::uint32_t w) const { return bell(w) + sizeof(Bell); }
  std::uint64_t commands(std::uint32_t w) const { return meter(w) + sizeof(Meter); }
  std::uint64_t results(std::uint32_t w) const { return commands(w) + ring_bytes<Command>(ring_capacity); }
  std::uint64_t blobs_in(std::uint32_t w) const { return results(w) + ring_bytes<Result>(ring_capacity); }
  std::uint64_t blobs_out(std::uint32_t w) const { return blobs_in(w) + sizeof(BlobHeader) + blob_bytes; }
};

}  // namespace remuda
