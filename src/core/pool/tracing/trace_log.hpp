// The latest events of a pool, for traces: a ring in the pool's own memory.
//
// An event is a worker's result, with the worker's time stamps, or the caller's way to a batch. One event covers a
// whole run of cheap steps; a slow step has its own event (see WorkerLoop::join_run).
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
    kResult = 0,  // a result of a worker
    kBatch = 1,   // from the caller's call to the batch that it returned
    kWait = 2,    // the caller's wait for anything but a batch
  };
  static constexpr std::uint32_t kNobody = 0xffffffff;

  std::uint64_t begin_ns;     //  0
  std::uint64_t end_ns;       //  8
  std::uint64_t inner_begin;  // 16  of a result: the reset that belongs to it; of a batch: the wait; 0: neither
  std::uint64_t inner_end;    // 24
  Kind kind;                  // 32
  std::uint32_t worker;       // 36  of a batch: the worker of the last result; or kNobody
  std::uint32_t env;          // 40  the first env; of a batch: of the last result
  std::uint32_t count;        // 44  of rows
  std::uint32_t op;           // 48  of a result
  std::uint32_t flags;        // 52  of a result
  std::uint32_t inner_env;    // 56  of a result: the env of the reset
  std::uint32_t unused;
};
static_assert(sizeof(TraceEvent) == 64 && offsetof(TraceEvent, kind) == 32 && offsetof(TraceEvent, inner_env) == 56);

class TraceLog {
 public:
  // Keeps the latest `capacity` events, at least 1. Memory is taken as events come.
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
  std::size_t next_ = 0, added_ = 0;  // index of the next event; number of events since this capacity was set
  std::unique_ptr<TraceEvent[]> events_;
};

}  // namespace remuda
