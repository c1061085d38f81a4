// What happened in a pool of late, for those who want to see it: a ring of events in the pool's own memory.
//
// An event is a worker's result, with the stamps that the worker put there, or the caller's way to a batch.  One event
// stands for a whole run of cheap steps; a slow one has its own (see WorkerLoop::join_run).
//
// All times are CLOCK_MONOTONIC, in ns.  Used under the GIL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace remuda {

struct TraceEvent {
  enum class Kind : std::uint32_t {
    kResult = 0,  // of a worker
    kBatch = 1,   // from the caller's call to the batch that he got
    kWait = 2,    // of the caller, for anything else than a batch
  };
  static constexpr std::uint32_t kNobody = 0xffffffff;

  std::uint64_t begin_ns;     //  0
  std::uint64_t end_ns;       //  8
  std::uint64_t inner_begin;  // 16  of a result: the reset that belongs to it; of a batch: the wait; 0: there was none
  std::uint64_t inner_end;    // 24
  Kind kind;                  // 32
  std::uint32_t worker;       // 36  of a batch: whose result was the last that came; or kNobody
  std::uint32_t env;          // 40  the first; of a batch: of that result
  std::uint32_t count;        // 44  of rows
  std::uint32_t op;           // 48  of a result
  std::uint32_t flags;        // 52  of a result
  std::uint32_t inner_env;    // 56  of a result: whose reset it was
  std::uint32_t unused;
};
static_assert(sizeof(TraceEvent) == 64 && offsetof(TraceEvent, kind) == 32 && offsetof(TraceEvent, inner_env) == 56);

class TraceLog {
 public:
  // Of the latest `capacity` events, from 1 up.  Memory is taken as events come.
  explicit TraceLog(std::size_t capacity) : capacity_(capacity), events_(new TraceEvent[capacity]) {}

  void add(const TraceEvent& event) {
    events_[next_] = event;
    ++added_;
    if (++next_ == capacity_) next_ = 0;
  }
  // Makes room for as many from now on; those that are there stay.
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
  // How many there are.
  std::size_t size() const { return std::min(added_, capacity_); }
  // The oldest first.
  void copy(TraceEvent* to) const {
    const std::size_t oldest = added_ > capacity_ ? next_ : 0;
    to = std::copy(events_.get() + oldest, events_.get() + size(), to);
    std::copy(events_.get(), events_.get() + oldest, to);
  }

 private:
  std::size_t capacity_;
  std::size_t next_ = 0, added_ = 0;  // where the next one goes; how many there have been since it has this capacity
  std::unique_ptr<TraceEvent[]> events_;
};

}  // namespace remuda
