// Decides whether, and for how long, a waiting thread spins before it sleeps.
//
// A spinner continues at once when its bell rings, and its core stays awake. A sleeper takes 4 to 60 us to wake up. But
// any thread with work to do needs the core more than a spinner. The most important one is the pool's caller, which
// computes the next actions while the workers wait. So the spinning workers leave one core to the caller, unless the
// caller sleeps meanwhile.
//
//   state     applies to                                                    spins
//   barred    a thread with a limit of 0; a worker if another pool of this  not at all
//             process is active
//   aside     a worker on the caller's core; and one worker if there are    not at all
//             as many workers as cores, so that the caller has a core;
//             none if the caller sleeps between two batches, as if a GPU
//             computes its policy (see `CallerMeter`)
//   crowded   all other threads, if one had to wait for a core              no longer than a wake-up takes
//   alone     all other threads                                             up to a limit
//
// In the states "crowded" and "alone", a thread does not spin if its recent waits took longer than it may spin.
//
// The worker that stands aside (does not spin, to leave a core to the caller) changes. A worker that finds itself on
// the caller's core registers itself (`SharedCores::sleeper`), which releases the previous one, and it stays on that
// core (`settle`).
//
// The state is "crowded" after a spinner was away from its core for long, and the kernel reports that it waited for the
// core meanwhile. This must happen twice in a row, because once may be chance. The host of a virtual machine also takes
// cores away and delays wake-ups, but then no thread waited for another one. `SharedCores` records the state, which
// expires after a while.
//
// The duration of a wake-up on this machine is measured from the wake-ups that were not late: a ringer that wakes a
// sleeper stores the time in the sleeper's bell.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ipc/clock.hpp"
#include "ipc/shared_cores.hpp"
#include "os/this_thread.hpp"

namespace remuda {

enum class SpinState : std::uint8_t { kBarred, kAside, kCrowded, kAlone };

// The system calls that the policy makes; tests replace them.
struct SpinProbe {
  std::uint32_t (*core)() = current_core;
  std::uint64_t (*waited)() = waited_for_core_ns;
  void (*move_to)(std::uint32_t core) = move_to_core;
};

class SpinPolicy {
 public:
  // The `who` of the pool's caller, which has no worker index.
  static constexpr std::uint32_t kCaller = 0xffffffff;

  // A wake-up that takes at least this long is late. A spinner that gets no turn for this long was away from its core.
  // The kernel lets a thread run for longer than this before it switches to another thread; the kernel's own short work
  // takes less.
  static constexpr Nanoseconds kAway = std::chrono::microseconds(250);
  // Two delays within this time are not chance, see `goes_on`. This is also the interval at which the kernel's
  // counter is read.
  static constexpr Nanoseconds kWindow = std::chrono::milliseconds(20);

  // The longest duration of one turn of spinning. A turn that takes longer includes time away from the core, which does
  // not count as spinning.
  static constexpr Nanoseconds kTurn = std::chrono::microseconds(5);

  // `who`: the index of the worker, or `kCaller`. If `ignore_load`, the thread spins up to the limit even if other
  // threads need the core.
  SpinPolicy(SharedCores& cores, std::uint32_t who, Nanoseconds limit, bool ignore_load = false, SpinProbe probe = {})
      : cores_(cores), who_(who), limit_(limit), ignore_load_(ignore_load), probe_(probe) {}

  SpinState state(Clock::time_point now) {
    if (limit_ <= Nanoseconds(0)) return SpinState::kBarred;
    if (ignore_load_) return SpinState::kAlone;
    if (who_ != kCaller) {
      if (cores_.barred.load(std::memory_order_relaxed) != 0) return SpinState::kBarred;
      if (stands_aside() && cores_.caller_sleeps.load(std::memory_order_relaxed) == 0) return SpinState::kAside;
    }
    return cores_.is_crowded(now) ? SpinState::kCrowded : SpinState::kAlone;
  }

  // Called when a wait begins. Returns how long to spin.
  Nanoseconds budget(Clock::time_point now) {
    begun_ = state(now);
    if (begun_ < SpinState::kCrowded) return Nanoseconds(0);
    if (now - asked_at_ >= kWindow) ask(now);
    const Nanoseconds most = begun_ == SpinState::kAlone ? limit_ : std::min(limit_, wake_up_);
    return recent_ <= most ? most : Nanoseconds(0);
  }

  // Called after each turn of spinning. Returns whether to continue.
  bool goes_on(Clock::time_point before, Clock::time_point now) {
    spun_ += std::min(now - before, kTurn);
    if (now - before >= kAway && has_waited(now - before, now)) {
      if (before - delayed_at_ <= kWindow) cores_.note_crowd(now);
      delayed_at_ = now;
      return ignore_load_;
    }
    return state(now) == begun_;
  }

  // Called just before the thread sleeps. The kernel wakes a thread on the core where it slept, unless that core is
  // busy and another is idle. So a worker that stands aside first migrates to the caller's core, which is free as soon
  // as the caller waits. On any other core it would compete with a spinner.
  void settle() {
    if (begun_ != SpinState::kAside) return;
    const std::uint32_t callers = cores_.learner.load(std::memory_order_relaxed);
    if (callers != 0 && callers != probe_.core() + 1) probe_.move_to(callers - 1);
  }

  // Called after a sleep. `rung_ns`: the time at which a ringer last woke a sleeper; `slept`: a time just before the
  // sleep. Returns the time at which the thread was woken, without the delay of the wake-up.
  Clock::time_point note_wake_up(std::uint64_t rung_ns, Clock::time_point slept, Clock::time_point now) {
    // No ring woke the thread in this sleep.
    if (rung_ns <= to_ns(slept) || rung_ns > to_ns(now)) return now;
    const auto took = Nanoseconds(to_ns(now) - rung_ns);
    if (took < kAway) {
      // The average adapts faster to shorter wake-ups, because a longer one may include the time until another thread
      // left the core.
      const int weight = took < wake_up_ ? 4 : 32;
      wake_up_ = wake_up_ == Nanoseconds(0) ? took : wake_up_ + (took - wake_up_) / weight;
    }
    return now - took;
  }

  // Called when a wait ends. `waited`: the duration of the wait.
  void note_wait(Nanoseconds waited) {
    if (limit_ <= Nanoseconds(0)) return;
    // A moving average: one wait, however long, does not stop the spinning, but a few do.
    recent_ += (std::min(waited, 4 * limit_) - recent_) / 8;
  }

  // Records the core on which the pool's caller continues; does nothing in a worker.
  void note_core() {
    if (who_ != kCaller) return;
    const std::uint32_t core = probe_.core() + 1;
    if (cores_.learner.load(std::memory_order_relaxed) != core) cores_.learner.store(core, std::memory_order_relaxed);
  }

  Nanoseconds wake_up() const { return wake_up_; }
  Nanoseconds spun() const { return spun_; }  // the total time of spinning, without time away from the core

 private:
  // Returns whether this worker stands aside, that is, does not spin. A worker on the caller's core stands aside, and
  // replaces the worker that is registered as the sleeper, if there is one.
  bool stands_aside() {
    const std::uint32_t me = who_ + 1, sleeper = cores_.sleeper.load(std::memory_order_relaxed);
    if (cores_.learner.load(std::memory_order_relaxed) != probe_.core() + 1) return sleeper == me;
    if (sleeper != 0 && sleeper != me) cores_.sleeper.store(me, std::memory_order_relaxed);
    return true;
  }

  void ask(Clock::time_point now) {
    waited_ = Nanoseconds(probe_.waited());
    asked_at_ = now;
  }
  // Returns whether the thread waited for a core during at least half of the time that it was away from its core.
  bool has_waited(Nanoseconds away, Clock::time_point now) {
    const Nanoseconds before = waited_;
    ask(now);
    return waited_ - before >= away / 2;
  }

  SharedCores& cores_;
  const std::uint32_t who_;
  const Nanoseconds limit_;
  const bool ignore_load_;
  const SpinProbe probe_;

  SpinState begun_ = SpinState::kBarred;  // The state at the start of the current wait.
  // The moving average of the durations of recent waits.
  Nanoseconds recent_{0};
  Nanoseconds wake_up_{0};  // the average duration of a wake-up; 0: not measured yet
  Nanoseconds spun_{0};
  Nanoseconds waited_{0};  // the total time that the thread had waited for a core at `asked_at_`
  Clock::time_point asked_at_{}, delayed_at_{};
};

}  // namespace remuda
