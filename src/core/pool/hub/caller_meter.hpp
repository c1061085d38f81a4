// Measures the time that the pool's caller spends in the pool, for statistics, and whether the caller sleeps between
// two batches, for the rules of spinning.
//
// The wait for envs is measured for every batch. The pool's own work (checking, copying, handing out) is measured for
// one batch in sixteen, because it costs two readings of the clock. The caller's own code has the rest of the time. Its
// CPU time is measured before the same batches: the caller sleeps if it uses a core for less than half of the time.
//
// Only the state of the current call is kept here; the figures are kept in the arena. Only the hub's caller uses this
// class.
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

#include "ipc/clock.hpp"
#include "ipc/shared_cores.hpp"
#include "os/this_thread.hpp"
#include "shm/figures.hpp"

namespace remuda {

class CallerMeter {
 public:
  static constexpr std::uint64_t kEvery = 16;

  CallerMeter(CallerFigures& figures, SharedCores& cores, std::uint64_t (*now)() = now_ns,
              std::uint64_t (*cpu)() = thread_cpu_ns)
      : figures_(figures), cores_(cores), now_(now), cpu_(cpu) {}

  std::uint64_t batches() const { return figures_.batches.load(std::memory_order_relaxed); }
  std::uint64_t waited_ns() const { return figures_.waited_ns.load(std::memory_order_relaxed); }

  // The measurement of one call that sends, receives, or both. It ends with its scope. After `goes_on()` it ends only
  // when a later call hands out a batch.
  class Call {
   public:
    explicit Call(CallerMeter& meter) : meter_(&meter) { meter.enter(); }
    ~Call() {
      if (meter_ != nullptr) meter_->leave();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    void goes_on() { meter_ = nullptr; }

   private:
    CallerMeter* meter_;
  };

  // Counts a batch that is handed out, which ends the measurement.
  void hand_over() {
    if (entered_ns_ != 0) {
      leave();
      add(figures_.sampled, 1);
    }
    add(figures_.batches, 1);
    if (is_timed()) left_ = {std::this_thread::get_id(), now_(), cpu_()};
  }

  void note_waited(std::uint64_t ns) { add(figures_.waited_ns, ns); }
  void note_unpickled(std::uint64_t ns) { add(figures_.unpickling_ns, ns); }
  void note_sending() {
    if (figures_.began_ns.load(std::memory_order_relaxed) == 0)
      figures_.began_ns.store(now_(), std::memory_order_relaxed);
  }

 private:
  // The caller's thread and its times when it left the pool.
  struct Left {
    std::thread::id thread;  // none if the caller has returned
    std::uint64_t ns = 0, cpu_ns = 0;
  };

  bool is_timed() const { return batches() % kEvery == 0; }
  void enter() {
    if (!is_timed() || entered_ns_ != 0) return;
    entered_ns_ = now_();
    waited_before_ = waited_ns();
    const Left left = std::exchange(left_, {});
    if (left.thread != std::this_thread::get_id() || left.cpu_ns == 0) return;  // 0: the system has no such clock
    const bool sleeps = cpu_() - left.cpu_ns < (entered_ns_ - left.ns) / 2;
    if (sleeps != (cores_.caller_sleeps.load(std::memory_order_relaxed) != 0))
      cores_.caller_sleeps.store(sleeps, std::memory_order_relaxed);
  }
  void leave() {
    if (entered_ns_ == 0) return;
    const std::uint64_t took = now_() - entered_ns_, waited = waited_ns() - waited_before_;
    add(figures_.gathering_ns, took > waited ? took - waited : 0);
    entered_ns_ = 0;
  }

  CallerFigures& figures_;
  SharedCores& cores_;
  std::uint64_t (*now_)();
  std::uint64_t (*cpu_)();
  std::uint64_t entered_ns_ = 0, waited_before_ = 0;
  Left left_;
};

}  // namespace remuda
