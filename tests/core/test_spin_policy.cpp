// Tests of which threads spin and for how long, with a simulated clock and simulated cores.
#include "check.hpp"
#include "ipc/spin_policy.hpp"

using namespace remuda;

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanoseconds kLimit = milliseconds(2);
constexpr Nanoseconds kNone{0};
constexpr std::uint32_t kCaller = SpinPolicy::kCaller;

// The simulated time, and the kernel's simulated data about the calling thread.
Clock::time_point now{};
std::uint32_t core = 0;
std::uint64_t waited = 0;  // the time spent waiting for a core, in ns
int moves = 0;             // the number of migrations to another core

const SpinPolicy::Probe kProbe{[] { return core; }, [] { return waited; },
                               [](std::uint32_t there) {
                                 core = there;
                                 ++moves;
                               }};

void begin() {
  now = Clock::time_point(std::chrono::hours(1));
  core = 0;
  waited = 100'000'000;
  moves = 0;
}

SpinPolicy policy(SharedCores& cores, std::uint32_t who, Nanoseconds limit = kLimit) {
  return SpinPolicy(cores, who, limit, false, kProbe);
}

// Simulates a turn of spinning that takes this long. Returns whether the thread continues to spin.
bool turn(SpinPolicy& spins, Nanoseconds takes) {
  const auto before = now;
  now += takes;
  return spins.goes_on(before, now);
}

// Simulates a turn of 3 ms, in which another thread had the spinner's core for 2 ms. Returns whether it continues to
// spin.
bool lose_core(SpinPolicy& spins) {
  spins.budget(now);
  waited += 2'000'000;
  return turn(spins, milliseconds(3));
}

// Simulates a wake-up that takes this long. Returns the time of the ring, as the policy computes it.
Clock::time_point wake_up(SpinPolicy& spins, Nanoseconds takes) {
  const auto slept = now;
  now += microseconds(10);
  const std::uint64_t rung = to_ns(now);
  now += takes;
  return spins.note_wake_up(rung, slept, now);
}

void go_to(SharedCores& cores, std::uint32_t learner) {
  SpinPolicy caller = policy(cores, kCaller);
  core = learner;
  caller.note_core();
}

}  // namespace

// -- which threads spin --------------------------------------------------------------------------------------

TEST(without_a_limit_nobody_spins) {
  begin();
  SharedCores cores{};
  SpinPolicy never, worker = policy(cores, 0, kNone), caller = policy(cores, kCaller, kNone);
  for (SpinPolicy* spins : {&never, &worker, &caller}) {
    CHECK_EQ(spins->state(now), SpinState::kBarred);
    CHECK(spins->budget(now) == kNone);
    spins->note_wait(microseconds(1));
    CHECK(spins->budget(now) == kNone);
  }
}

TEST(who_has_a_core_to_himself_spins_up_to_the_limit) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0), caller = policy(cores, kCaller);
  for (SpinPolicy* spins : {&worker, &caller}) {
    CHECK_EQ(spins->state(now), SpinState::kAlone);
    CHECK(spins->budget(now) == kLimit);
    CHECK(turn(*spins, microseconds(1)));
  }
}

TEST(who_shares_the_callers_core_sleeps) {
  begin();
  SharedCores cores{};
  go_to(cores, 3);
  SpinPolicy worker = policy(cores, 0);
  core = 3;
  CHECK_EQ(worker.state(now), SpinState::kAside);
  CHECK(worker.budget(now) == kNone);
  core = 2;
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

TEST(a_spinner_makes_room_when_the_caller_comes_to_its_core) {
  begin();
  SharedCores cores{};
  go_to(cores, 3);
  SpinPolicy worker = policy(cores, 0);
  core = 2;
  CHECK(worker.budget(now) == kLimit);
  CHECK(turn(worker, microseconds(1)));
  go_to(cores, 2);
  CHECK(!turn(worker, microseconds(1)));
}

TEST(of_as_many_workers_as_cores_one_sleeps) {
  begin();
  SharedCores cores{};
  cores.sleeper = 2;  // worker 1
  go_to(cores, 5);
  SpinPolicy first = policy(cores, 0), second = policy(cores, 1), third = policy(cores, 2);
  core = 1;
  CHECK_EQ(first.state(now), SpinState::kAlone);
  CHECK_EQ(second.state(now), SpinState::kAside);
  CHECK_EQ(third.state(now), SpinState::kAlone);
}

TEST(nobody_stands_aside_for_a_caller_that_sleeps) {
  begin();
  SharedCores cores{};
  cores.sleeper = 2;  // worker 1
  cores.caller_sleeps = 1;
  go_to(cores, 5);
  SpinPolicy first = policy(cores, 0), second = policy(cores, 1);
  core = 1;
  CHECK_EQ(second.state(now), SpinState::kAlone);
  core = 5;
  CHECK_EQ(first.state(now), SpinState::kAlone);
  cores.caller_sleeps = 0;
  CHECK_EQ(first.state(now), SpinState::kAside);
}

TEST(who_stands_aside_sleeps_on_the_callers_core) {
  begin();
  SharedCores cores{};
  cores.sleeper = 2;  // worker 1
  SpinPolicy first = policy(cores, 0), second = policy(cores, 1);
  core = 1;
  second.budget(now);
  second.settle();  // the caller's core is not recorded yet
  CHECK_EQ(moves, 0);
  go_to(cores, 5);
  core = 1;
  first.budget(now);
  first.settle();
  CHECK_EQ(moves, 0);  // worker 0 does not stand aside, so it stays on its core
  second.budget(now);
  second.settle();
  CHECK_EQ(moves, 1);
  CHECK_EQ(core, 5U);
  second.budget(now);
  second.settle();
  CHECK_EQ(moves, 1);  // it is on the caller's core already
}

TEST(a_policy_without_a_pool_settles_nowhere) {
  begin();
  SpinPolicy never;
  never.budget(now);
  never.settle();
  CHECK_EQ(moves, 0);
}

TEST(it_is_the_one_on_the_callers_core_and_the_other_is_set_free) {
  begin();
  SharedCores cores{};
  cores.sleeper = 2;
  go_to(cores, 5);
  SpinPolicy first = policy(cores, 0), second = policy(cores, 1);
  core = 5;
  CHECK_EQ(first.state(now), SpinState::kAside);
  core = 1;
  CHECK_EQ(first.state(now), SpinState::kAside);  // it stands aside until another worker replaces it
  CHECK_EQ(second.state(now), SpinState::kAlone);
  core = 5;
  CHECK_EQ(second.state(now), SpinState::kAside);
  core = 1;
  CHECK_EQ(first.state(now), SpinState::kAlone);
}

TEST(where_there_is_a_core_for_each_nobody_need_sleep) {
  begin();
  SharedCores cores{};
  go_to(cores, 5);
  SpinPolicy worker = policy(cores, 0);
  core = 5;
  CHECK_EQ(worker.state(now), SpinState::kAside);
  CHECK_EQ(cores.sleeper.load(), 0U);
  core = 1;
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

TEST(while_another_pool_is_at_work_workers_sleep) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0), caller = policy(cores, kCaller);
  CHECK(worker.budget(now) == kLimit);
  cores.barred = 1;
  CHECK(!turn(worker, microseconds(1)));
  CHECK_EQ(worker.state(now), SpinState::kBarred);
  CHECK(worker.budget(now) == kNone);
  CHECK_EQ(caller.state(now), SpinState::kAlone);  // only workers are barred
  cores.barred = 0;
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

// -- a machine that is busy ------------------------------------------------------------------------------------

TEST(losing_the_core_twice_in_a_row_makes_a_crowd) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0), other = policy(cores, 1), caller = policy(cores, kCaller);
  CHECK(!lose_core(worker));  // ends this spin, but is no crowd yet
  CHECK_EQ(worker.state(now), SpinState::kAlone);
  now += microseconds(500);
  CHECK(!lose_core(worker));
  for (SpinPolicy* spins : {&worker, &other, &caller}) CHECK_EQ(spins->state(now), SpinState::kCrowded);
}

TEST(losing_it_now_and_then_is_chance) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  for (int i = 0; i < 100; ++i) {
    CHECK(!lose_core(worker));
    now += 2 * SpinPolicy::kWindow;
  }
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

// The time for which other threads have the core does not separate two losses of the core.
TEST(twice_in_a_row_is_from_the_end_of_one_to_the_beginning_of_the_next) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  for (int i = 0; i < 2; ++i) {
    worker.budget(now);
    waited += to_ns(now + 3 * SpinPolicy::kWindow) - to_ns(now);
    CHECK(!turn(worker, 3 * SpinPolicy::kWindow));
  }
  CHECK_EQ(worker.state(now), SpinState::kCrowded);
}

// A virtual machine's host or a debugger may stop all threads. Then no other thread had the core.
TEST(time_that_passes_while_no_other_has_the_core_is_not_the_others) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  worker.budget(now);
  for (int i = 0; i < 10; ++i) {
    waited += 5'000;  // another thread had the core for 5 us
    CHECK(turn(worker, milliseconds(3)));
  }
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

TEST(losing_the_core_for_a_moment_does_not_count) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  worker.budget(now);
  for (int i = 0; i < 100; ++i) {
    waited += 15'000;
    CHECK(turn(worker, microseconds(20)));
  }
  CHECK_EQ(worker.state(now), SpinState::kAlone);
}

TEST(the_system_is_seldom_asked) {
  begin();
  static int asked;
  asked = 0;
  SharedCores cores{};
  SpinPolicy worker(cores, 0, kLimit, false, {[] { return core; }, [] { return std::uint64_t{0} * ++asked; }});
  for (int i = 0; i < 10'000; ++i) {  // waits of 1 s in total
    worker.budget(now);
    turn(worker, microseconds(100));
    worker.note_wait(microseconds(100));
  }
  CHECK(asked <= 1 + seconds(1) / SpinPolicy::kWindow);
}

TEST(who_is_woken_late_tells_nothing_for_an_idle_core_may_take_long_to_wake) {
  for (std::uint32_t who : {std::uint32_t{0}, kCaller}) {
    begin();
    SharedCores cores{};
    SpinPolicy sleeper = policy(cores, who), worker = policy(cores, 1);
    for (int i = 0; i < 10; ++i) wake_up(sleeper, milliseconds(3));
    CHECK_EQ(worker.state(now), SpinState::kAlone);
  }
}

TEST(in_a_crowd_nobody_spins_for_longer_than_a_wake_up_takes) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0), caller = policy(cores, kCaller);
  for (SpinPolicy* spins : {&worker, &caller}) {
    cores.note_crowd(now);
    CHECK_EQ(spins->state(now), SpinState::kCrowded);
    CHECK(spins->budget(now) == kNone);  // the duration of a wake-up is not measured yet
    wake_up(*spins, microseconds(40));
    CHECK(spins->budget(now) == microseconds(40));
    for (int i = 0; i < 100; ++i) wake_up(*spins, microseconds(8));
    CHECK(spins->budget(now) >= microseconds(8) && spins->budget(now) < microseconds(9));
    wake_up(*spins, milliseconds(5));  // a late wake-up is ignored
    CHECK(spins->budget(now) < microseconds(9));
    // every second one waits for a core
    for (int i = 0; i < 100; ++i) wake_up(*spins, microseconds(i % 2 == 0 ? 8 : 200));
    CHECK(spins->budget(now) < microseconds(60));
    for (int i = 0; i < 100; ++i) spins->note_wait(microseconds(200));
    CHECK(spins->budget(now) == kNone);  // recent waits were longer than a wake-up
  }
}

TEST(a_spinner_stops_when_it_gets_crowded) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  worker.budget(now);
  CHECK(turn(worker, microseconds(1)));
  cores.note_crowd(now);
  CHECK(!turn(worker, microseconds(1)));
}

TEST(a_ring_that_was_for_somebody_else_or_for_nobody_is_no_wake_up) {
  begin();
  SharedCores cores{};
  SpinPolicy caller = policy(cores, kCaller);
  const auto slept = now;
  now += milliseconds(1);
  for (std::uint64_t rung : {std::uint64_t{0}, to_ns(slept), to_ns(now) + 1, ~std::uint64_t{0}})
    for (int i = 0; i < 2; ++i) CHECK(caller.note_wake_up(rung, slept, now) == now);
  CHECK(caller.wake_up() == kNone);
  CHECK_EQ(caller.state(now), SpinState::kAlone);
}

// -- how long it stays crowded -----------------------------------------------------------------------------------

TEST(after_a_pause_it_is_tried_again_and_each_time_in_vain_the_pause_is_twice_as_long) {
  begin();
  SharedCores cores{};
  Nanoseconds pause = SharedCores::kLeastPause;
  for (int i = 0; i < 12; ++i) {
    cores.note_crowd(now);
    now += pause - Nanoseconds(1);
    CHECK(cores.is_crowded(now));
    now += Nanoseconds(1);
    CHECK(!cores.is_crowded(now));
    now += milliseconds(5);
    pause = std::min(2 * pause, SharedCores::kLongestPause);
  }
  CHECK(pause == SharedCores::kLongestPause);
  now += SharedCores::kLongestPause;  // no crowd for a long time
  cores.note_crowd(now);
  CHECK(!cores.is_crowded(now + SharedCores::kLeastPause));
}

TEST(one_crowd_that_many_tell_of_is_one) {
  begin();
  SharedCores cores{};
  for (int i = 0; i < 10; ++i) cores.note_crowd(now += milliseconds(1));
  CHECK(!cores.is_crowded(now + SharedCores::kLeastPause));
}

TEST(nonsense_in_shared_memory_does_not_keep_anybody_asleep) {
  begin();
  for (std::uint64_t nonsense : {~std::uint64_t{0}, to_ns(now) + std::uint64_t{20'000'000'000}}) {
    SharedCores cores{};
    cores.crowded_until = nonsense;
    cores.pause = nonsense;
    CHECK(!cores.is_crowded(now));
    cores.note_crowd(now);
    CHECK(cores.is_crowded(now));
    CHECK(!cores.is_crowded(now + SharedCores::kLongestPause));
  }
}

// -- for how long ------------------------------------------------------------------------------------------------

TEST(patience_is_lost_over_long_waits_and_regained_over_short_ones) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  for (int i = 0; i < 100; ++i) worker.note_wait(kLimit / 2);
  CHECK(worker.budget(now) == kLimit);
  for (int i = 0; i < 100; ++i) worker.note_wait(3 * kLimit);
  CHECK(worker.budget(now) == kNone);
  for (int i = 0; i < 100; ++i) worker.note_wait(kLimit / 2);
  CHECK(worker.budget(now) == kLimit);
}

// Otherwise, the first sleep would make the waits seem too long for spinning, permanently.
TEST(how_late_one_wakes_up_is_no_part_of_the_wait) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  for (int i = 0; i < 100; ++i) {
    const auto begun = now;
    now += kLimit / 2;
    const auto there = wake_up(worker, 2 * kLimit);
    CHECK(there == begun + kLimit / 2 + microseconds(10));
    worker.note_wait(there - begun);
  }
  CHECK(worker.budget(now) == kLimit);
}

// If a caller makes a thousand steps and then learns for a second, the workers still spin afterwards.
TEST(a_single_wait_does_not_end_patience_however_long) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  for (int i = 0; i < 100; ++i) worker.note_wait(kLimit / 4);
  worker.note_wait(seconds(100));
  CHECK(worker.budget(now) == kLimit);
  for (int i = 0; i < 5; ++i) worker.note_wait(seconds(100));
  CHECK(worker.budget(now) == kNone);
}

TEST(what_was_spun_is_counted) {
  begin();
  SharedCores cores{};
  SpinPolicy worker = policy(cores, 0);
  worker.budget(now);
  for (int i = 0; i < 5; ++i) turn(worker, microseconds(1));
  turn(worker, milliseconds(1));  // includes time away from the core
  CHECK(worker.spun() == microseconds(5) + SpinPolicy::kTurn);
}

TEST(the_heedless_spin_whomever_that_hurts) {
  begin();
  SharedCores cores{};
  cores.sleeper = 1;
  cores.barred = 1;
  go_to(cores, 3);
  cores.note_crowd(now);
  core = 3;
  SpinPolicy worker(cores, 0, kLimit, true, kProbe);
  CHECK_EQ(worker.state(now), SpinState::kAlone);
  CHECK(worker.budget(now) == kLimit);
  for (int i = 0; i < 3; ++i) CHECK(lose_core(worker));
}
