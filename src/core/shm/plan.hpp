// Where everything lies in the arena.  The offsets are computed, never sent: the pool and its workers
// run this same function on the same few numbers.
//
//   0        ArenaHeader
//   64       Bell                 the pool waits here; every worker rings it
//   192      Records              the number of log records and warnings of workers
//   256      SharedCores          who may spin
//   320      worker 0             Bell | Meter | command ring | result ring | blobs in | blobs out
//            worker 1 ...         (each starts on a cache line of its own)
//            progress             one line per env
//            figures              of each env | of each worker | of the caller: see figures.hpp
//            action columns       one row per slot, then the rollouts'
//            columns              one row per slot and frame: row = frame * slots + the slot's position
//                                 then, where faults are restarted or envs renewed, two rows per env
//                                 then the rollouts'
//            log                  headers | beginnings | kinds | objects | action columns, where faults are recorded
//
// A slot's position is its number, unless the pool is split: the rows of each part lie together.  There are as many
// envs as slots, and the spares; progress and logs are the envs', not the slots'.
//
// Columns are arrays of rows (never rows of columns), so that a frame of a column is a contiguous
// (slots, ...) array, and consecutive frames are a (frames, slots, ...) one.  Frame 0 is the scratch
// frame: it takes the results of commands that went to some of the slots only.
//
// Rollouts take their rows further on (pool/rollouts/rollout_store.hpp).  There are as many as the machine could ever
// hold, and none of them has memory until a rollout takes it: they are addresses and nothing else.  So a row is found
// where it ever was, and who writes rows need not know what a rollout is.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/protocol.hpp"
#include "ipc/ring.hpp"
#include "ipc/shared_cores.hpp"
#include "shm/arena.hpp"
#include "shm/figures.hpp"

namespace remuda {

// The number of log records and warnings that all workers have sent to the pool, or are about to send.  A record is
// counted before the result of its command is published, so a reader of the result sees the count ("publish",
// ring.hpp).  The count orders nothing else.
struct Records {
  alignas(64) std::atomic<std::uint32_t> sent;
};
static_assert(sizeof(Records) == 64);

// What a worker has done so far.  Written by the worker alone, read by anybody at any time; the
// numbers are for statistics, nothing is ordered by them.
struct Meter {
  alignas(64) std::atomic<std::uint64_t> steps;  // steps and autoresets
  std::atomic<std::uint64_t> busy_ns;            // wall time inside envs
  std::atomic<std::uint64_t> cpu_ns;             // CPU time, as of a millisecond ago at most; spinning does not count
  std::atomic<std::uint64_t> task;               // what it does now, see Task; 0: nothing
  std::atomic<std::uint32_t> env;                // ... and to which env, or kWholeWorker
  std::atomic<std::uint32_t> pid;                // whose process it is; 0: there is none yet
};
static_assert(sizeof(Meter) == 64);

inline constexpr Field kFieldsOfMeter[] = {
    {"steps", "u8", 1, offsetof(Meter, steps)},   {"busy_ns", "u8", 1, offsetof(Meter, busy_ns)},
    {"cpu_ns", "u8", 1, offsetof(Meter, cpu_ns)}, {"task", "u8", 1, offsetof(Meter, task)},
    {"env", "u4", 1, offsetof(Meter, env)},       {"pid", "u4", 1, offsetof(Meter, pid)},
};

// An op and when it began, in one word, so that a reader never takes one's beginning for another's.
struct Task {
  static std::uint64_t pack(Op op, std::uint64_t begin_ns) {
    return (begin_ns & ~kOpMask) | (static_cast<std::uint64_t>(op) + 1);
  }
  static Op op(std::uint64_t task) { return static_cast<Op>((task & kOpMask) - 1); }
  // Whether a worker of ours has written it.
  static bool is_sound(std::uint64_t task) { return (task & kOpMask) != 0 && op(task) <= Op::kPrepare; }
  static std::uint64_t begin_ns(std::uint64_t task) { return task & ~kOpMask; }
  // Whether it is over by then, at which its worker has ended something.  It is cleared after its result is there
  // for all to see, and a worker may die in between.
  static bool is_over(std::uint64_t task, std::uint64_t end_ns) { return (task | kOpMask) < end_ns; }

 private:
  static constexpr std::uint64_t kOpMask = 15;
};

// How far an env has come.  Written by its worker, and outlives it: a death report reads it, and the
// worker's successor goes on counting.
struct Progress {
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> steps;    // begun since the last reset
  std::atomic<std::uint64_t> results;  // rows filled
  // What it was seeded with: which base its seeds are derived from, by the pool's count; the number of the latest reset
  // that was given one; and that of the reset from which resets are counted, so that this one had the n-th seed.
  std::atomic<std::uint64_t> seed_base;
  std::atomic<std::uint64_t> seeded_at;
  std::atomic<std::uint64_t> counted_from;
  std::atomic<std::uint64_t> needs_reset;  // whether its last result ended the episode, and the next has not been told
  std::uint64_t unused;
};
static_assert(sizeof(Progress) == 64);

// Of an env's log, see episode_log.hpp.  Written by its worker alone.
struct LogHeader {
  alignas(64) std::atomic<std::uint64_t> entries;  // so far
  std::atomic<std::uint64_t> begun;                // of those: resets
  std::atomic<std::uint64_t> calls;                // since the env was made
  std::atomic<std::uint64_t> object_bytes;         // in use
};
static_assert(sizeof(LogHeader) == 64);

struct LogBeginning {
  static constexpr std::uint32_t kPlaces = 3;  // of an env

  std::atomic<std::uint64_t> entry;  // whose it is, plus 1; 0: nobody's
  std::atomic<std::uint32_t> size;
  std::byte text[16372];
};
static_assert(sizeof(LogBeginning) == 16384);

// The fixed columns; the observation's leaves follow them, then computed columns, then leaves of terminal observations.
inline constexpr std::size_t kReward = 0;      // float64
inline constexpr std::size_t kTerminated = 1;  // bool
inline constexpr std::size_t kTruncated = 2;   // bool
inline constexpr std::size_t kInfoMask = 3;    // uint64: which info columns this row has filled
inline constexpr std::size_t kInfo = 4;        // room that is dealt out to info keys, see infos.py
inline constexpr std::size_t kFirstLeaf = 5;

struct Plan {
  std::uint32_t workers;
  std::uint32_t slots;
  std::uint32_t envs;           // one for each slot, and the spares
  std::uint32_t frames;         // the scratch frame counted
  std::uint32_t ring_capacity;  // a power of two
  std::uint64_t blob_bytes;
  std::vector<std::uint64_t> action_bytes;  // of one row, per action column
  std::vector<std::uint64_t> column_bytes;  // of one row, per column
  std::uint32_t width = 1;                  // so many neighbouring envs are stepped as one, see protocol.hpp
  bool keeps_last = false;                  // two more rows keep each env's last result, for when its worker dies
  std::uint32_t log_entries = 0;            // of each env's log; 0: there is none
  std::uint64_t log_object_bytes = 0;       // of each env's log, for what has no column
  std::uint32_t rollout_rows = 0;           // that rollouts may have; without memory until they do

  // Computed by `lay_out`.
  std::vector<std::uint64_t> ports = {}, actions = {}, columns = {};
  std::uint64_t progress = 0;
  std::uint64_t env_figures = 0, worker_figures = 0, caller_figures = 0;
  std::uint64_t log_headers = 0, log_beginnings = 0, log_kinds = 0, log_objects = 0;
  std::vector<std::uint64_t> log_actions = {};
  std::uint64_t bytes = 0;

  // Of the columns: all, those that have memory from the start, and of the actions.
  std::uint32_t rows() const { return first_rollout_row() + rollout_rows; }
  std::uint32_t first_rollout_row() const { return slots * frames + (keeps_last ? 2 * envs : 0); }
  std::uint32_t action_rows() const { return slots + rollout_rows; }

  std::uint64_t log_rows() const { return std::uint64_t{log_entries} * envs; }

  // Where the n-th result of an env is kept.  The next one goes elsewhere, so that a worker killed while it
  // writes leaves the one before it whole.
  std::uint32_t kept_row(std::uint32_t env, std::uint64_t n) const {
    return frames * slots + static_cast<std::uint32_t>(n & 1) * envs + env;
  }

  void lay_out() {
    if (ring_capacity == 0 || (ring_capacity & (ring_capacity - 1)) != 0)
      throw std::invalid_argument("the capacity of a ring must be a power of two");
    if (column_bytes.size() < kFirstLeaf) throw std::invalid_argument("the fixed columns are missing");
    std::uint64_t at = kCores + sizeof(SharedCores);
    auto place = [&](std::uint64_t size) {
      std::uint64_t offset = at;
      at = (at + size + 63) / 64 * 64;
      return offset;
    };
    for (std::uint32_t w = 0; w < workers; ++w) ports.push_back(place(port_bytes()));
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
      for (std::uint64_t size : action_bytes) log_actions.push_back(place(size * log_rows()));
    }
    bytes = at;
  }

  // What has memory from the start, in order: all but the rows of rollouts.  Where there are such rows, info columns
  // get theirs when they are given out: which of the room is of which row depends on their sizes.
  std::vector<Stretch> reserved() const {
    std::vector<Stretch> stretches;
    std::uint64_t from = 0;
    auto leave_out = [&](std::uint64_t begin, std::uint64_t end) {
      if (end == begin) return;
      stretches.push_back({from, begin - from});
      from = end;
    };
    for (std::size_t c = 0; c < actions.size(); ++c)
      leave_out(actions[c] + action_bytes[c] * slots, actions[c] + action_bytes[c] * action_rows());
    for (std::size_t c = 0; c < columns.size() && rollout_rows != 0; ++c)
      leave_out(columns[c] + (c == kInfo ? 0 : column_bytes[c] * first_rollout_row()),
                columns[c] + column_bytes[c] * rows());
    stretches.push_back({from, bytes - from});
    return stretches;
  }

  // The parts of worker w's port.
  static constexpr std::uint64_t kPoolBell = sizeof(ArenaHeader);
  static constexpr std::uint64_t kRecords = kPoolBell + sizeof(Bell);
  static constexpr std::uint64_t kCores = kRecords + sizeof(Records);
  std::uint64_t bell(std::uint32_t w) const { return ports[w]; }
  std::uint64_t meter(std::uint32_t w) const { return bell(w) + sizeof(Bell); }
  std::uint64_t commands(std::uint32_t w) const { return meter(w) + sizeof(Meter); }
  std::uint64_t results(std::uint32_t w) const { return commands(w) + ring_bytes<Command>(ring_capacity); }
  std::uint64_t blobs_in(std::uint32_t w) const { return results(w) + ring_bytes<Result>(ring_capacity); }
  std::uint64_t blobs_out(std::uint32_t w) const { return blobs_in(w) + sizeof(BlobHeader) + blob_bytes; }

 private:
  std::uint64_t port_bytes() const {
    return sizeof(Bell) + sizeof(Meter) + ring_bytes<Command>(ring_capacity) + ring_bytes<Result>(ring_capacity) +
           2 * (sizeof(BlobHeader) + blob_bytes);
  }
};

}  // namespace remuda
