// The latest events of a pool, for traces: a ring in the pool's own memory.
//
// An event is a worker's result, with the worker's time stamps; a batch; or another wait of the caller. One event
// covers a whole run of cheap steps; a slow step has its own event (see WorkerPort::join_run).
//
// All times are CLOCK_MONOTONIC, in ns. All functions need the GIL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace remuda {

struct TraceEvent {
  enum class Kind : std::uint32_t {
    kResult = 0,  // A result of a worker.
    kBatch = 1,   // The time from the caller's call to the batch that it returned.
    kWait = 2,    // The caller's wait for anything but a batch.
  };
  static constexpr std::uint32_t kNobody = 0xffffffff;

  // Each comment begins with the field's offset in bytes.
  std::uint64_t begin_ns;  //  0
  std::uint64_t end_ns;    //  8
  // 16: the start of the reset within a result, or of the wait for a batch; 0 if there is none.
  std::uint64_t inner_begin;
  std::uint64_t inner_end;  // 24
  Kind kind;                // 32
  std::uint32_t worker;     // 36: the worker of a result; for a batch, that of its last result, or kNobody.
  std::uint32_t env;        // 40: the first env of a result; for a batch, that of its last result.
  std::uint32_t count;      // 44: the number of rows.
  std::uint32_t op;         // 48: the op of a result.
  std::uint32_t flags;      // 52: the flags of a result.
  std::uint32_t inner_env;  // 56: the env of a result's reset.
  std::uint32_t unused;
};
static_assert(sizeof(TraceEvent) == 64 && offsetof(TraceEvent, kind) == 32 && offsetof(TraceEvent, inner_env) == 56);

class TraceLog {
 public:
  // Keeps the latest `capacity` events; `capacity` must be at least 1.
  explicit TraceLog(std::size_t capacity) : capacity_(capacity), events_(new TraceEvent[capacity]) {}

  void add(const TraceEvent& event) {
    events_[next_] = event;
    ++added_;
    if (++next_ == capacity_) next_ = 0;
  }
  // Increases the capacity, and keeps all events.
  void grow(std::size_t capacity) {
    if (capacity <= capacity_) return;
    std::unique_ptr<TraceEvent[]> events(new TraceEvent[capacity]);
    const std::size_t kept = size();
    copy(events.get());
    events_ = std::move(events);
    capacity_ = capacity;
    next_ = kept;
    added_ = kept;
  }

  std::size_t capacity() const { return capacity_; }
  // The number of events in the log.
  std::size_t size() const { return std::min(added_, capacity_); }
  // Copies the events to `to`, the oldest first.
  void copy(TraceEvent* to) const {
    const std::size_t oldest = added_ > capacity_ ? next_ : 0;
    to = std::copy(events_.get() + oldest, events_.get() + size(), to);
    std::copy(events_.get(), events_.get() + oldest, to);
  }

 private:
  std::size_t capacity_;
  // `next_`: the index of the next event. `added_`: the number of events that were added since the capacity was set.
  std::size_t next_ = 0, added_ = 0;
  std::unique_ptr<TraceEvent[]> events_;
};

}  // namespace remuda
