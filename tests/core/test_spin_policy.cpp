// Tests of which threads spin and for how long, with a simulated clock and simulated cores.
#include <utility>

#include "check.hpp"
#include "ipc/spin_policy.hpp"

using namespace remuda;
using namespace std::chrono_literals;

namespace {

constexpr Nanoseconds kLimit = 2ms, kNone{0};
constexpr std::uint32_t kCaller = SpinPolicy::kCaller;

// The simulated time, and the kernel's simulated data about the calling thread.
Clock::time_point now{};
std::uint32_t core = 0;
std::uint64_t waited = 0;  // the time spent waiting for a core, in ns
int moves = 0;             // the number of migrations to another core

void move_to(std::uint32_t there) {
  core = there;
  ++moves;
}

// A machine one hour after its start.
struct Machine {
  Machine() {
    now = Clock::time_point(1h);
    waited = 100'000'000;
    core = moves = 0;
  }
  SpinPolicy policy(std::uint32_t who, Nanoseconds limit = kLimit, bool ignore_load = false) {
    return {cores, who, limit, ignore_load, {[] { return core; }, [] { return waited; }, move_to}};
  }
  void move_caller_to(std::uint32_t there) {
    const std::uint32_t before = std::exchange(core, there);
    policy(kCaller).note_core();
    core = before;
  }

  SharedCores cores{};
};

// Simulates a turn of spinning that takes this long, in which other threads had the core for `others`. Returns whether
// the thread continues to spin.
bool turn(SpinPolicy& spins, Nanoseconds takes, Nanoseconds others = kNone) {
  const auto before = now;
  now += takes;
  waited += static_cast<std::uint64_t>(others.count());
  return spins.goes_on(before, now);
}

// Simulates a wake-up that takes this long. Returns the time of the ring, as the policy computes it.
Clock::time_point wake_up(SpinPolicy& spins, Nanoseconds takes) {
  const auto slept = now;
  now += 10us;
  const std::uint64_t rung = to_ns(now);
  now += takes;
  return spins.note_wake_up(rung, slept, now);
}

}  // namespace

// -- which threads spin --------------------------------------------------------------------------------------

TEST(a_thread_spins_unless_the_caller_or_another_pool_needs_its_core) {
  struct Case {
    std::uint32_t sleeper, barred, caller_sleeps;  // see `SharedCores`
    std::uint32_t callers_core, who, own_core;
    SpinState expected;
    Nanoseconds limit = kLimit;
  };
  constexpr Case kCases[] = {
      {0, 0, 0, 3, 0, 2, SpinState::kBarred, kNone},  // without a limit, no thread spins
      {0, 0, 0, 3, kCaller, 3, SpinState::kBarred, kNone},
      {0, 0, 0, 3, 0, 2, SpinState::kAlone},        // a core of its own
      {0, 0, 0, 3, kCaller, 3, SpinState::kAlone},  //
      {0, 0, 0, 3, 0, 3, SpinState::kAside},        // the caller's core
      {2, 0, 0, 5, 0, 1, SpinState::kAlone},        // worker 1 is the one that leaves its core to the caller
      {2, 0, 0, 5, 1, 1, SpinState::kAside},        //
      {2, 0, 0, 5, 2, 1, SpinState::kAlone},        //
      {2, 0, 1, 5, 1, 1, SpinState::kAlone},        // the caller sleeps and needs no core
      {2, 0, 1, 5, 0, 5, SpinState::kAlone},        //
      {0, 1, 0, 5, 0, 1, SpinState::kBarred},       // another pool is at work, which bars only workers
      {0, 1, 0, 5, kCaller, 1, SpinState::kAlone},  //
  };
  for (const Case& one : kCases) {
    Machine machine;
    machine.cores.sleeper = one.sleeper;
    machine.cores.barred = one.barred;
    machine.cores.caller_sleeps = one.caller_sleeps;
    machine.move_caller_to(one.callers_core);
    SpinPolicy spins = machine.policy(one.who, one.limit);
    core = one.own_core;
    spins.note_wait(1us);
    CHECK_EQ(spins.state(now), one.expected);
    CHECK(spins.budget(now) == (one.expected == SpinState::kAlone ? kLimit : kNone));
  }
}

TEST(a_spinner_stops_when_its_state_changes) {
  void (*const changes[])(Machine&) = {[](Machine& machine) { machine.move_caller_to(core); },
                                       [](Machine& machine) { machine.cores.barred = 1; },
                                       [](Machine& machine) { machine.cores.note_crowd(now); }};
  for (auto* change : changes) {
    Machine machine;
    machine.move_caller_to(3);
    SpinPolicy worker = machine.policy(0);
    CHECK(worker.budget(now) == kLimit);
    CHECK(turn(worker, 1us));
    change(machine);
    CHECK(!turn(worker, 1us));
  }
}

TEST(a_worker_that_stands_aside_sleeps_on_the_callers_core) {
  Machine machine;
  machine.cores.sleeper = 2;  // worker 1
  SpinPolicy first = machine.policy(0), second = machine.policy(1);
  const auto settle = [](SpinPolicy& spins) {
    spins.budget(now);
    spins.settle();
    return moves;
  };
  core = 1;
  CHECK_EQ(settle(second), 0);  // the caller's core is not recorded yet
  machine.move_caller_to(5);
  CHECK_EQ(settle(first), 0);  // worker 0 does not stand aside, so it stays on its core
  CHECK_EQ(settle(second), 1);
  CHECK_EQ(core, 5U);
  CHECK_EQ(settle(second), 1);  // it is on the caller's core already
}

TEST(a_worker_on_the_callers_core_replaces_the_one_that_stands_aside) {
  Machine machine;
  machine.cores.sleeper = 2;
  machine.move_caller_to(5);
  SpinPolicy first = machine.policy(0), second = machine.policy(1);
  const auto state_on = [](SpinPolicy& spins, std::uint32_t there) {
    core = there;
    return spins.state(now);
  };
  CHECK_EQ(state_on(first, 5), SpinState::kAside);
  CHECK_EQ(state_on(first, 1), SpinState::kAside);  // it stands aside until another worker replaces it
  CHECK_EQ(state_on(second, 1), SpinState::kAlone);
  CHECK_EQ(state_on(second, 5), SpinState::kAside);
  CHECK_EQ(state_on(first, 1), SpinState::kAlone);
  machine.cores.sleeper = 0;  // there is a core for each worker, so none has to stand aside
  CHECK_EQ(state_on(first, 5), SpinState::kAside);
  CHECK_EQ(machine.cores.sleeper.load(), 0U);
  CHECK_EQ(state_on(first, 1), SpinState::kAlone);
}

TEST(a_policy_that_ignores_the_load_spins_up_to_the_limit) {
  Machine machine;
  machine.cores.sleeper = machine.cores.barred = 1;
  machine.cores.note_crowd(now);
  machine.move_caller_to(core);
  SpinPolicy worker = machine.policy(0, kLimit, true);
  CHECK_EQ(worker.state(now), SpinState::kAlone);
  CHECK(worker.budget(now) == kLimit);
  for (int i = 0; i < 3; ++i) CHECK(turn(worker, 3ms, 2ms));
}

// -- a machine that is busy ------------------------------------------------------------------------------------

TEST(losing_the_core_twice_in_a_row_makes_a_crowd) {
  struct Case {
    Nanoseconds takes, others, pause;  // the duration of a turn, the others' part of it, and the time until the next
    int turns;
    bool goes_on;
    SpinState expected;
  };
  const Case cases[] = {
      {3ms, 2ms, 500us, 1, false, SpinState::kAlone},  // ends this spin, but is no crowd yet
      {3ms, 2ms, 500us, 2, false, SpinState::kCrowded},
      {3ms, 2ms, 2 * SpinPolicy::kWindow, 100, false, SpinState::kAlone},  // chance
      // The time for which other threads have the core does not separate two losses of the core.
      {3 * SpinPolicy::kWindow, 3 * SpinPolicy::kWindow, kNone, 2, false, SpinState::kCrowded},
      // A virtual machine's host or a debugger may stop all threads. Then no other thread had the core.
      {3ms, 5us, kNone, 10, true, SpinState::kAlone},
      {20us, 15us, kNone, 100, true, SpinState::kAlone},  // only for a moment
  };
  for (const Case& one : cases) {
    Machine machine;
    SpinPolicy worker = machine.policy(0), other = machine.policy(1), caller = machine.policy(kCaller);
    for (int i = 0; i < one.turns; ++i) {
      if (i == 0 || !one.goes_on) worker.budget(now);
      CHECK_EQ(turn(worker, one.takes, one.others), one.goes_on);
      now += one.pause;
    }
    for (SpinPolicy* spins : {&worker, &other, &caller}) CHECK_EQ(spins->state(now), one.expected);
  }
}

TEST(the_system_is_seldom_asked) {
  static int asked;
  asked = 0;
  Machine machine;
  SpinPolicy worker(machine.cores, 0, kLimit, false, {[] { return core; }, [] { return std::uint64_t{0} * ++asked; }});
  for (int i = 0; i < 10'000; ++i) {  // waits of 1 s in total
    worker.budget(now);
    turn(worker, 100us);
    worker.note_wait(100us);
  }
  CHECK(asked <= 1 + 1s / SpinPolicy::kWindow);
}

// An idle core may take long to wake up.
TEST(late_wake_ups_make_no_crowd) {
  for (std::uint32_t who : {0U, kCaller}) {
    Machine machine;
    SpinPolicy sleeper = machine.policy(who);
    for (int i = 0; i < 10; ++i) wake_up(sleeper, 3ms);
    CHECK_EQ(machine.policy(1).state(now), SpinState::kAlone);
  }
}

TEST(in_a_crowd_no_thread_spins_for_longer_than_a_wake_up_takes) {
  for (std::uint32_t who : {0U, kCaller}) {
    Machine machine;
    machine.cores.note_crowd(now);
    SpinPolicy spins = machine.policy(who);
    const auto budget_after = [&](int times, Nanoseconds even, Nanoseconds odd) {
      for (int i = 0; i < times; ++i) wake_up(spins, i % 2 == 0 ? even : odd);
      return spins.budget(now);
    };
    CHECK(budget_after(0, kNone, kNone) == kNone);  // the duration of a wake-up is not measured yet
    CHECK(budget_after(1, 40us, 40us) == 40us);
    const Nanoseconds found = budget_after(100, 8us, 8us);
    CHECK(found >= 8us && found < 9us);
    CHECK(budget_after(1, 5ms, 5ms) == found);    // a late wake-up is ignored
    CHECK(budget_after(100, 8us, 200us) < 60us);  // every second one waits for a core
    for (int i = 0; i < 100; ++i) spins.note_wait(200us);
    CHECK(spins.budget(now) == kNone);  // recent waits were longer than a wake-up
  }
}

TEST(a_ring_that_woke_no_thread_is_no_wake_up) {
  Machine machine;
  SpinPolicy caller = machine.policy(kCaller);
  const auto slept = now;
  now += 1ms;
  for (std::uint64_t rung : {std::uint64_t{0}, to_ns(slept), to_ns(now) + 1, ~std::uint64_t{0}})
    CHECK(caller.note_wake_up(rung, slept, now) == now);
  CHECK(caller.wake_up() == kNone);
}

// -- how long it stays crowded -----------------------------------------------------------------------------------

TEST(each_pause_in_vain_is_twice_as_long) {
  Machine machine;
  SharedCores& cores = machine.cores;
  Nanoseconds pause = SharedCores::kLeastPause;
  for (int i = 0; i < 12; ++i) {
    cores.note_crowd(now);
    now += pause - 1ns;
    CHECK(cores.is_crowded(now));
    now += 1ns;
    CHECK(!cores.is_crowded(now));
    now += 5ms;
    pause = std::min(2 * pause, SharedCores::kLongestPause);
  }
  CHECK(pause == SharedCores::kLongestPause);
  now += SharedCores::kLongestPause;                          // no crowd for a long time
  for (int i = 0; i < 10; ++i) cores.note_crowd(now += 1ms);  // many threads report one crowd
  CHECK(!cores.is_crowded(now + SharedCores::kLeastPause));
}

TEST(nonsense_in_shared_memory_keeps_no_thread_asleep) {
  for (std::uint64_t nonsense : {~std::uint64_t{0}, to_ns(Clock::time_point(1h + 20s))}) {
    Machine machine;
    SharedCores& cores = machine.cores;
    cores.crowded_until = cores.pause = nonsense;
    CHECK(!cores.is_crowded(now));
    cores.note_crowd(now);
    CHECK(cores.is_crowded(now));
    CHECK(!cores.is_crowded(now + SharedCores::kLongestPause));
  }
}

// -- for how long ------------------------------------------------------------------------------------------------

// If a caller makes a thousand steps and then learns for a second, the workers still spin afterwards.
TEST(patience_is_lost_over_some_long_waits_and_regained_over_short_ones) {
  Machine machine;
  SpinPolicy worker = machine.policy(0);
  const auto budget_after = [&](int times, Nanoseconds wait) {
    for (int i = 0; i < times; ++i) worker.note_wait(wait);
    return worker.budget(now);
  };
  CHECK(budget_after(100, kLimit / 4) == kLimit);
  CHECK(budget_after(1, 100s) == kLimit);
  CHECK(budget_after(5, 100s) == kNone);
  CHECK(budget_after(100, kLimit / 2) == kLimit);
  CHECK(budget_after(100, 3 * kLimit) == kNone);
  CHECK(budget_after(100, kLimit / 2) == kLimit);
}

// Otherwise, the first sleep would make the waits seem too long for spinning, permanently.
TEST(the_delay_of_a_wake_up_is_no_part_of_the_wait) {
  Machine machine;
  SpinPolicy worker = machine.policy(0);
  for (int i = 0; i < 100; ++i) {
    const auto begun = now;
    now += kLimit / 2;
    const auto there = wake_up(worker, 2 * kLimit);
    CHECK(there == begun + kLimit / 2 + 10us);
    worker.note_wait(there - begun);
  }
  CHECK(worker.budget(now) == kLimit);
}

TEST(spinning_is_counted) {
  Machine machine;
  SpinPolicy worker = machine.policy(0);
  worker.budget(now);
  for (int i = 0; i < 5; ++i) turn(worker, 1us);
  turn(worker, 1ms);  // includes time away from the core
  CHECK(worker.spun() == 5us + SpinPolicy::kTurn);
}
