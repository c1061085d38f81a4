// Tests that no wake-up is lost: before the waiter falls asleep, with several ringers, and when the count wraps around.
// `test_interrupted.cpp` does so for rings that jump over the target, for a target of an earlier wait, and between
// processes.
#include <thread>
#include <vector>

#include "check.hpp"
#include "ipc/doorbell.hpp"
#include "random.hpp"
#include "waiting.hpp"

using namespace remuda;

TEST(reached_compares_across_the_wrap_around) {
  Bell bell{};
  for (std::uint32_t count : {0U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    bell.notified = count;
    for (std::uint32_t reached_count : {count, count - 1, count - 1000}) CHECK(reached(bell, reached_count));
    for (std::uint32_t later_count : {count + 1, count + 1000}) CHECK(!reached(bell, later_count));
  }
}

TEST(a_wait_ends_at_its_limit) {
  Bell bell{};
  for (Nanoseconds limit : {Nanoseconds(0), Nanoseconds(1000), Nanoseconds(2'000'000)}) {
    SharedCores cores{};
    SpinPolicy spins(cores, 0, limit);
    wait(bell, 1, limit, spins);
    CHECK(!reached(bell, 1));
    CHECK_EQ(bell.sleeping.load(), 0U);
  }
}

// A few dozen instructions lie between the waiter's last check and its sleep. Up to four ringers ring at random moments
// around them, thousands of times, and the waits below need every ring.
TEST(no_wake_up_is_lost) {
  for (std::uint32_t ringers : {1, 2, 4}) {
    for (std::uint32_t count : {0U, 0xffffff80U, 0xffffffffU, 0x7fffff80U}) {
      Bell bell{};
      bell.notified = count;
      constexpr std::uint32_t kTurns = 3000;
      std::atomic<std::uint32_t> turn{0};
      std::vector<std::thread> threads;
      for (std::uint32_t r = 0; r < ringers; ++r) {
        threads.emplace_back([&, r] {
          Random random(100 * ringers + r);
          for (std::uint32_t i = 1; i <= kTurns; ++i) {
            while (turn.load(std::memory_order_relaxed) < i) std::this_thread::yield();
            idle(random.below(600));
            notify(bell);
          }
        });
      }
      Random random(5);
      for (std::uint32_t i = 1; i <= kTurns; ++i) {
        turn.store(i, std::memory_order_relaxed);
        idle(random.below(600));
        wait_until(bell, count + i * ringers);
      }
      for (std::thread& thread : threads) thread.join();
      CHECK_EQ(bell.notified.load(), count + kTurns * ringers);
    }
  }
}

// After a wait, the waiter sees all data that the ringer wrote before it rang.
TEST(the_bell_publishes_what_was_written_before_it) {
  Bell bell{}, answer{};
  std::uint64_t value = 0;
  std::thread waiter([&] {
    for (std::uint32_t i = 1; i <= 2000; ++i) {
      wait_until(bell, i);
      CHECK_EQ(value, i);
      value += 1'000'000;
      notify(answer);
    }
  });
  SharedCores cores{};
  const SpinPolicy spins(cores, 0, std::chrono::microseconds(50));
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    value = i;
    notify(bell);
    wait_until(answer, i, spins);
    CHECK_EQ(value, i + 1'000'000);
  }
  waiter.join();
}

TEST(a_patient_waiter_does_not_sleep) {
  Bell bell{};
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    SharedCores cores{};
    waiting = true;
    wait_until(bell, 1, SpinPolicy(cores, 0, kForever, true));
  });
  while (!waiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) {
    CHECK_EQ(bell.sleeping.load(), 0U);
    std::this_thread::yield();
  }
  notify(bell);
  waiter.join();
}

// From this time, the waiter computes the duration of its wake-up.
TEST(who_wakes_a_sleeper_leaves_the_time_in_the_bell) {
  Bell bell{};
  notify(bell);
  CHECK_EQ(bell.rung_ns.load(), 0U);  // no waiter sleeps
  bell.sleeping = 1;
  bell.target = 3;
  notify(bell);
  CHECK_EQ(bell.rung_ns.load(), 0U);  // the count is still below the target
  const std::uint64_t before = now_ns();
  notify(bell);
  CHECK(before <= bell.rung_ns.load() && bell.rung_ns.load() <= now_ns());
}

TEST(a_waiter_learns_how_long_a_wake_up_takes) {
  Bell bell{};
  SpinPolicy spins = no_spinning();
  for (std::uint32_t i = 1; spins.wake_up() == Nanoseconds(0); ++i) {  // those that are late do not count
    std::thread waiter([&] {
      while (!reached(bell, i)) wait(bell, i, kForever, spins);
    });
    wait_until_asleep(bell);
    notify(bell);
    waiter.join();
  }
  CHECK(spins.wake_up() < SpinPolicy::kAway);
}
