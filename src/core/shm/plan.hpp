// The layout of the arena. The offsets are computed, never sent: the pool and its workers run this same function on the
// same few numbers.
//
//   0        ArenaHeader
//   64       Bell                 the pool waits here; every worker rings it
//   192      Records              the number of log records and warnings of workers
//   256      SharedCores          which threads may spin
//   320      worker 0             Bell | Meter | command ring | result ring | blobs in | blobs out
//            worker 1 ...         (each starts on a cache line of its own)
//            progress             one line per env
//            figures              of each env | of each worker | of the caller: see figures.hpp
//            action columns       one row per slot, then the rollouts'
//            columns              one row per slot and frame: row = frame * slots + the slot's position
//                                 then, if faults are restarted or envs renewed, two rows per env
//                                 then the rollouts'
//            log                  headers | beginnings | kinds | objects | action columns, if faults are recorded
//
// A slot's position is its number, unless the pool is split: then the rows of each part are contiguous. There are as
// many envs as slots, plus the spares. Progress and logs belong to envs, not to slots.
//
// Columns are arrays of rows (never rows of columns), so that a frame of a column is a contiguous (slots, ...) array,
// and consecutive frames are a (frames, slots, ...) one. Frame 0 is the scratch frame: it takes the results of commands
// that went to some of the slots only.
//
// Rollouts use the rows after these (pool/rollouts/rollout_store.hpp). Their number is the most that the machine could
// ever hold. They are addresses without memory until a rollout takes them. So a row never moves, and code that writes
// rows does not depend on rollouts.
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

// The number of log records and warnings that all workers have sent to the pool, or are about to send. A record is
// counted before the result of its command is published, so a reader of the result sees the count ("publish",
// ring.hpp). The count orders nothing else.
struct Records {
  alignas(64) std::atomic<std::uint32_t> sent;
};
static_assert(sizeof(Records) == 64);

// Counts of a worker's work, for statistics. The worker alone writes them; any thread may read them at any time. They
// order nothing.
struct Meter {
  alignas(64) std::atomic<std::uint64_t> steps;  // steps and autoresets
  std::atomic<std::uint64_t> busy_ns;            // wall time inside envs
  std::atomic<std::uint64_t> cpu_ns;             // CPU time without spinning, at most a millisecond out of date
  std::atomic<std::uint64_t> task;               // the current task, see Task; 0: idle
  std::atomic<std::uint32_t> env;                // the env of the task, or kWholeWorker
  std::atomic<std::uint32_t> pid;                // the pid of the worker's process; 0: not started
};
static_assert(sizeof(Meter) == 64);

inline constexpr Field kFieldsOfMeter[] = {
    {"steps", "u8", 1, offsetof(Meter, steps)},   {"busy_ns", "u8", 1, offsetof(Meter, busy_ns)},
    {"cpu_ns", "u8", 1, offsetof(Meter, cpu_ns)}, {"task", "u8", 1, offsetof(Meter, task)},
    {"env", "u4", 1, offsetof(Meter, env)},       {"pid", "u4", 1, offsetof(Meter, pid)},
};

// An op and its start time in one word, so that a reader never combines the op of one task with the start of another.
struct Task {
  static std::uint64_t pack(Op op, std::uint64_t begin_ns) {
    return (begin_ns & ~kOpMask) | (static_cast<std::uint64_t>(op) + 1);
  }
  static Op op(std::uint64_t task) { return static_cast<Op>((task & kOpMask) - 1); }
  // Whether the word is a valid task, and not corrupted memory.
  static bool is_sound(std::uint64_t task) { return (task & kOpMask) != 0 && op(task) <= Op::kPrepare; }
  static std::uint64_t begin_ns(std::uint64_t task) { return task & ~kOpMask; }
  // Whether the task was over when its worker finished something at `end_ns`. The worker clears a task after it
  // publishes the result, and may die in between.
  static bool is_over(std::uint64_t task, std::uint64_t end_ns) { return (task | kOpMask) < end_ns; }

 private:
  static constexpr std::uint64_t kOpMask = 15;
};

// The progress of an env. Its worker writes it, and it outlives the worker: a death report reads it, and the worker's
// successor continues the counts.
struct Progress {
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> steps;    // steps begun since the last reset
  std::atomic<std::uint64_t> results;  // rows filled
  // The env's seeds: the base that they are derived from, by the pool's count; the number of the latest reset with a
  // seed; and the number of the reset from which resets are counted. The seed of the latest seeded reset was number
  // seeded_at - counted_from.
  std::atomic<std::uint64_t> seed_base;
  std::atomic<std::uint64_t> seeded_at;
  std::atomic<std::uint64_t> counted_from;
  // Whether its last result ended the episode, and the worker has not reported the next episode yet.
  std::atomic<std::uint64_t> needs_reset;
  std::uint64_t unused;
};
static_assert(sizeof(Progress) == 64);

// The header of an env's log, see episode_log.hpp. Its worker alone writes it.
struct LogHeader {
  alignas(64) std::atomic<std::uint64_t> entries;  // entries so far
  std::atomic<std::uint64_t> begun;                // resets among them
  std::atomic<std::uint64_t> calls;                // calls since the env was made
  std::atomic<std::uint64_t> object_bytes;         // bytes in use
};
static_assert(sizeof(LogHeader) == 64);

struct LogBeginning {
  // Places per env.
  static constexpr std::uint32_t kPlaces = 3;

  std::atomic<std::uint64_t> entry;  // the entry that it belongs to, plus 1; 0: empty
  std::atomic<std::uint32_t> size;
  std::byte text[16372];
};
static_assert(sizeof(LogBeginning) == 16384);

// The fixed columns. The leaves of observations follow them, then computed columns, then the leaves of terminal
// observations.
inline constexpr std::size_t kReward = 0;      // float64
inline constexpr std::size_t kTerminated = 1;  // bool
inline constexpr std::size_t kTruncated = 2;   // bool
inline constexpr std::size_t kInfoMask = 3;    // uint64: the mask of info columns that this row has filled
inline constexpr std::size_t kInfo = 4;        // room for info columns, see infos.py
inline constexpr std::size_t kFirstLeaf = 5;

struct Plan {
  std::uint32_t workers;
  std::uint32_t slots;
  std::uint32_t envs;           // one for each slot, plus the spares
  std::uint32_t frames;         // including the scratch frame
  std::uint32_t ring_capacity;  // a power of two
  std::uint64_t blob_bytes;
  std::vector<std::uint64_t> action_bytes;  // bytes of one row, per action column
  std::vector<std::uint64_t> column_bytes;  // bytes of one row, per column
  std::uint32_t width = 1;                  // the number of neighbouring envs stepped as one, see protocol.hpp
  bool keeps_last = false;             // whether two more rows keep each env's last result, in case its worker dies
  std::uint32_t log_entries = 0;       // entries of each env's log; 0: no log
  std::uint64_t log_object_bytes = 0;  // bytes of each env's log for parts without a column
  std::uint32_t rollout_rows = 0;      // the most rows for rollouts; without memory until they are taken

  // Computed by `lay_out`.
  std::vector<std::uint64_t> ports = {}, actions = {}, columns = {};
  std::uint64_t progress = 0;
  std::uint64_t env_figures = 0, worker_figures = 0, caller_figures = 0;
  std::uint64_t log_headers = 0, log_beginnings = 0, log_kinds = 0, log_objects = 0;
  std::vector<std::uint64_t> log_actions = {};
  std::uint64_t bytes = 0;

  // Rows of the columns: all of them; those that have memory from the start; and the rows of the action columns.
  std::uint32_t rows() const { return first_rollout_row() + rollout_rows; }
  std::uint32_t first_rollout_row() const { return slots * frames + (keeps_last ? 2 * envs : 0); }
  std::uint32_t action_rows() const { return slots + rollout_rows; }

  std::uint64_t log_rows() const { return std::uint64_t{log_entries} * envs; }

  // Returns the row that keeps the n-th result of an env. The next result uses the other row, so that a worker killed
  // while it writes leaves the previous one whole.
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

  // Returns the ranges that have memory from the start, in order: everything except the rows of rollouts. With
  // rollouts, info columns get their memory when they are assigned, because the bytes of each row depend on the sizes
  // of the columns.
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

  // The offsets of the pool's bell, records and cores, and of the parts of worker w's port.
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
