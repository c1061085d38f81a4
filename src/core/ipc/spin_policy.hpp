// Whether, and for how long, one who waits may spin before he sleeps.
//
// A spinner is there at once when his bell rings, where one who sleeps takes 4 to 60 us to wake up; and the core that
// he spins on stays awake.  But the core is worth more to anybody who has something to do: to the pool's caller above
// all, who computes the next actions while the workers wait.  So there are never more spinners than cores beside his.
//
//   state     of                                                            he spins
//   barred    one who never may; workers, while another pool is at work     not at all
//   aside     a worker on the caller's core; and one of as many workers     not at all
//             as there are cores, so that a core is left for the caller
//   crowded   everybody else, where somebody had to wait for a core         no longer than a wake-up takes
//   alone     everybody else                                                up to a limit
//
// In the last two he spins while his recent waits were shorter than that, else not at all.
//
// Who is to stand aside: the worker that finds itself on the caller's core says so (`SharedCores::sleeper`), which sets
// free the one that was until then; and it stays there (`settle`).  That somebody had to wait for a core shows, twice
// in a row, as once may be chance, when a spinner was away from his core for long, and others had it meanwhile, as the
// kernel tells.  (The host of a virtual machine, too, takes cores away, and makes sleepers wake up late: nobody here
// had to wait for us then.)  All that is told in `SharedCores`, and is over after a while.
//
// How long a wake-up takes on this machine is known from those that were not late: whoever rings for a sleeper leaves
// the time in his bell.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ipc/clock.hpp"
#include "ipc/shared_cores.hpp"
#include "os/this_thread.hpp"

namespace remuda {

enum class SpinState : std::uint8_t { kBarred, kAside, kCrowded, kAlone };

class SpinPolicy {
 public:
  static constexpr std::uint32_t kCaller = 0xffffffff;  // in the place of a worker's index

  // From then on a wake-up is late, and a spinner away: the kernel lets a thread run for longer than this before
  // another's turn comes, and its own work of a moment is over before.
  static constexpr Nanoseconds kAway = std::chrono::microseconds(250);
  // Two delays no further apart are no chance; and the kernel is asked so often.
  static constexpr Nanoseconds kWindow = std::chrono::milliseconds(20);

  // A turn of spinning takes no longer: what is above that, it was away.
  static constexpr Nanoseconds kTurn = std::chrono::microseconds(5);

  // What is asked of the system; tests have their own.
  struct Probe {
    std::uint32_t (*core)() = current_core;
    std::uint64_t (*waited)() = waited_for_core_ns;
    void (*move_to)(std::uint32_t core) = move_to_core;
  };

  SpinPolicy() = default;  // never spins
  // `who`: the worker, or `kCaller`.  `is_heedless`: it spins up to the limit, whomever that hurts.
  SpinPolicy(SharedCores& cores, std::uint32_t who, Nanoseconds limit, bool is_heedless = false)
      : SpinPolicy(cores, who, limit, is_heedless, Probe()) {}
  SpinPolicy(SharedCores& cores, std::uint32_t who, Nanoseconds limit, bool is_heedless, Probe probe)
      : cores_(&cores), who_(who), limit_(limit), is_heedless_(is_heedless), probe_(probe) {}

  SpinState state(Clock::time_point now) {
    if (limit_ <= Nanoseconds(0)) return SpinState::kBarred;
    if (is_heedless_) return SpinState::kAlone;
    if (who_ != kCaller) {
      if (cores_->barred.load(std::memory_order_relaxed) != 0) return SpinState::kBarred;
      if (stands_aside()) return SpinState::kAside;
    }
    return cores_->is_crowded(now) ? SpinState::kCrowded : SpinState::kAlone;
  }

  // A wait begins: for how long to spin.
  Nanoseconds budget(Clock::time_point now) {
    begun_ = state(now);
    if (begun_ < SpinState::kCrowded) return Nanoseconds(0);
    if (now - asked_at_ >= kWindow) ask(now);
    const Nanoseconds most = begun_ == SpinState::kAlone ? limit_ : std::min(limit_, wake_up_);
    return recent_ <= most ? most : Nanoseconds(0);
  }

  // After each turn of spinning: whether to go on.
  bool goes_on(Clock::time_point before, Clock::time_point now) {
    spun_ += std::min(now - before, kTurn);
    if (now - before >= kAway && has_waited(now - before, now)) {
      note_delay(before, now);
      return is_heedless_;
    }
    return state(now) == begun_;
  }

  // He is about to sleep.  The kernel wakes a thread where it slept, unless that core is busy and another is idle.  So
  // who stands aside sleeps on the caller's, which is his as soon as the caller waits; anywhere else he would meet a
  // spinner.
  void settle() {
    if (begun_ != SpinState::kAside) return;
    const std::uint32_t callers = cores_->learner.load(std::memory_order_relaxed);
    if (callers != 0 && callers != probe_.core() + 1) probe_.move_to(callers - 1);
  }

  // After a sleep that had begun by `slept`, where the bell says that it was rung for a sleeper at `rung_ns`.  Returns
  // when what was waited for was there: how late he woke up is none of it.
  Clock::time_point note_wake_up(std::uint64_t rung_ns, Clock::time_point slept, Clock::time_point now) {
    if (cores_ == nullptr || rung_ns <= to_ns(slept) || rung_ns > to_ns(now)) return now;  // it was not for us
    const auto took = Nanoseconds(to_ns(now) - rung_ns);
    if (took < kAway) {
      // What the shorter ones take: in the longer ones somebody had to get off the core first.
      const int weight = took < wake_up_ ? 4 : 32;
      wake_up_ = wake_up_ == Nanoseconds(0) ? took : wake_up_ + (took - wake_up_) / weight;
    }
    return now - took;
  }

  // The wait is over.
  void note_wait(Nanoseconds waited) {
    if (limit_ <= Nanoseconds(0)) return;
    // A moving average.  One wait, however long, does not end our patience, but a few do.
    recent_ += (std::min(waited, 4 * limit_) - recent_) / 8;
  }

  // The caller is about to go on: here.
  void note_core() {
    if (who_ != kCaller || cores_ == nullptr) return;
    const std::uint32_t core = probe_.core() + 1;
    if (cores_->learner.load(std::memory_order_relaxed) != core) cores_->learner.store(core, std::memory_order_relaxed);
  }

  Nanoseconds wake_up() const { return wake_up_; }
  Nanoseconds spun() const { return spun_; }  // all told, on a core

 private:
  // Claims to be the sleeper, if there is to be one and we are where he belongs.
  bool stands_aside() {
    const std::uint32_t me = who_ + 1, sleeper = cores_->sleeper.load(std::memory_order_relaxed);
    if (cores_->learner.load(std::memory_order_relaxed) != probe_.core() + 1) return sleeper == me;
    if (sleeper != 0 && sleeper != me) cores_->sleeper.store(me, std::memory_order_relaxed);
    return true;
  }

  void note_delay(Clock::time_point since, Clock::time_point now) {
    if (since - delayed_at_ <= kWindow) cores_->note_crowd(now);
    delayed_at_ = now;
  }

  void ask(Clock::time_point now) {
    waited_ = Nanoseconds(probe_.waited());
    asked_at_ = now;
  }
  // Whether most of the time that it was away it has waited for a core.
  bool has_waited(Nanoseconds away, Clock::time_point now) {
    const Nanoseconds before = waited_;
    ask(now);
    return waited_ - before >= away / 2;
  }

  SharedCores* cores_ = nullptr;
  std::uint32_t who_ = kCaller;
  Nanoseconds limit_{0};
  bool is_heedless_ = false;
  Probe probe_;

  SpinState begun_ = SpinState::kBarred;  // how the wait began
  Nanoseconds recent_{0};                 // waits
  Nanoseconds wake_up_{0};                // how long it takes; 0: not known yet
  Nanoseconds spun_{0};
  Nanoseconds waited_{0};  // for a core, all told, as of then:
  Clock::time_point asked_at_{}, delayed_at_{};
};

}  // namespace remuda
