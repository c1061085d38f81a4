// The latest events of a pool, for traces.
//
// An event is a worker's result, with the worker's time stamps; a batch; or another wait of the caller. One event
// covers a whole run of cheap steps; a slow step has its own event (see WorkerPort::join_run).
//
// All times are CLOCK_MONOTONIC, in ns. All functions need the GIL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "ipc/clock.hpp"
#include "ipc/protocol.hpp"

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
  explicit TraceLog(std::size_t capacity) : capacity_(capacity) {}

  void add(const TraceEvent& event) {
    if (events_.size() == capacity_) events_.pop_front();
    events_.push_back(event);
  }
  // Increases the capacity, and keeps all events.
  void grow(std::size_t capacity) { capacity_ = std::max(capacity_, capacity); }
  const std::deque<TraceEvent>& events() const { return events_; }  // the oldest first

 private:
  std::size_t capacity_;
  std::deque<TraceEvent> events_;
};

// Adds the hub's events to a `TraceLog`. Without a log, only `is_on` and `set_log` may be called.
class Tracing {
 public:
  bool is_on() const { return log_ != nullptr; }
  // Replaces the log; null stops the trace.
  void set_log(std::shared_ptr<TraceLog> log) {
    log_ = std::move(log);
    begin_batch();
  }

  // Notes that the caller begins a step. The event of the next batch begins at this time.
  void note_step(Clock::time_point now) { called_ = to_ns(now); }
  // Notes that the caller requests a batch. After an interruption, this may be the second call for the same batch; then
  // the first one counts.
  void note_call(Clock::time_point now) {
    if (called_ == 0) called_ = to_ns(now);
  }
  void note_wait(Clock::time_point before, Clock::time_point now, bool is_for_batch) {
    if (!is_for_batch) {
      log_->add({to_ns(before), to_ns(now), 0, 0, TraceEvent::Kind::kWait, TraceEvent::kNobody, 0, 0, 0, 0, 0, 0});
      return;
    }
    if (waited_from_ == 0) waited_from_ = to_ns(before);
    waited_until_ = to_ns(now);
  }
  void note_result(std::uint32_t worker, const Result& result) {
    last_worker_ = worker;
    last_env_ = result.env;
    log_->add({result.begin_ns, result.end_ns, result.reset_begin_ns, result.reset_end_ns, TraceEvent::Kind::kResult,
               worker, result.env, result.count, static_cast<std::uint32_t>(result.op), result.flags, result.reset_env,
               0});
  }
  void note_batch(std::uint32_t rows) {
    const std::uint64_t now = now_ns();
    const std::uint64_t begin = called_ != 0 ? called_ : waited_from_ != 0 ? waited_from_ : now;
    log_->add(
        {begin, now, waited_from_, waited_until_, TraceEvent::Kind::kBatch, last_worker_, last_env_, rows, 0, 0, 0, 0});
    begin_batch();
  }

 private:
  void begin_batch() {
    called_ = waited_from_ = waited_until_ = 0;
    last_worker_ = TraceEvent::kNobody;
  }

  std::shared_ptr<TraceLog> log_;
  // For the next batch: the time of the call, and the times when its wait began and ended; 0 if the time has not come
  // yet.
  std::uint64_t called_ = 0, waited_from_ = 0, waited_until_ = 0;
  std::uint32_t last_worker_ = TraceEvent::kNobody, last_env_ = 0;
};

}  // namespace remuda
