// Adds the hub's events to a `TraceLog`. Without a log, only `is_on` and `set_log` may be called.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ipc/clock.hpp"
#include "ipc/protocol.hpp"
#include "pool/tracing/trace_log.hpp"

namespace remuda {

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
