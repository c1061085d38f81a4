// Tests that no wake-up is lost: before the waiter falls asleep, with several ringers, when the count wraps around, and
// between processes.
//
// The waits have no useful time limit. If a wake-up is lost, the test hangs until the test runner's timeout.
#include <thread>
#include <vector>

#include "check.hpp"
#include "ipc/doorbell.hpp"
#include "random.hpp"

#if REMUDA_LINUX
#include <sys/wait.h>
#include <unistd.h>

#include "shared.hpp"
#include "stepped.hpp"
#endif

using namespace remuda;

namespace {

constexpr Nanoseconds kForever = std::chrono::hours(24);
constexpr std::uint32_t kCounts[] = {0, 0xffffff80, 0xffffffff, 0x7fffff80};

// Waits until the bell has been rung up to `target`, as a waiter must: checks, waits, checks again.
void wait_until(Bell& bell, std::uint32_t target, SpinPolicy& spins) {
  while (!reached(bell, target)) wait(bell, target, kForever, spins);
}

void wait_until_asleep(const Bell& bell) {
  while (bell.sleeping.load() == 0) std::this_thread::yield();
}

SpinPolicy none() { return SpinPolicy(); }

}  // namespace

TEST(reached_compares_across_the_wrap_around) {
  Bell bell{};
  for (std::uint32_t count : {0U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    bell.notified = count;
    CHECK(reached(bell, count));
    CHECK(reached(bell, count - 1));
    CHECK(reached(bell, count - 1000));
    CHECK(!reached(bell, count + 1));
    CHECK(!reached(bell, count + 1000));
  }
}

TEST(ringing_counts) {
  Bell bell{};
  bell.notified = 0xfffffffe;
  notify(bell);
  notify(bell, 5);
  CHECK_EQ(bell.notified.load(), 4U);
}

TEST(a_bell_that_has_rung_is_not_waited_for) {
  Bell bell{};
  SpinPolicy spins = none();
  for (std::uint32_t count : kCounts) {
    bell.notified = count;
    wait(bell, count, kForever, spins);
    wait(bell, count - 3, kForever, spins);
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

TEST(a_sleeper_is_woken) {
  for (std::uint32_t count : kCounts) {
    Bell bell{};
    bell.notified = count;
    std::thread waiter([&] {
      SpinPolicy spins = none();
      for (std::uint32_t i = 1; i <= 300; ++i) wait_until(bell, count + i, spins);
    });
    for (std::uint32_t i = 1; i <= 300; ++i) {
      // In two of three turns the waiter is certainly asleep; in the third it may still be falling asleep.
      if (i % 3 != 0) wait_until_asleep(bell);
      notify(bell);
    }
    waiter.join();
  }
}

TEST(a_sleeper_is_woken_at_its_target_and_by_what_jumps_over_it) {
  for (std::uint32_t start : {0U, 0xfffffff8U, 0x7ffffff8U}) {
    for (std::uint32_t target : {1, 3, 10}) {
      for (std::uint32_t step : {1, 2, 7, 64}) {
        for (int turn = 0; turn < 20; ++turn) {
          Bell bell{};
          bell.notified = start;
          std::thread waiter([&] {
            SpinPolicy spins = none();
            wait_until(bell, start + target, spins);
          });
          wait_until_asleep(bell);
          for (std::uint32_t notified = 0; notified < target; notified += step) notify(bell, step);
          waiter.join();
        }
      }
    }
  }
}

// A wait that has timed out leaves its target in the bell. The next wait, with a lower target, must not use it.
TEST(a_target_holds_for_one_wait_only) {
  Bell bell{};
  std::atomic<std::uint32_t> waits{0};
  constexpr std::uint32_t kTurns = 3000;
  std::thread waiter([&] {
    SpinPolicy spins = none();
    for (std::uint32_t i = 1; i <= kTurns; ++i) {
      wait(bell, i + 1000, Nanoseconds(0), spins);  // no ringer rings so often
      waits.store(i);
      wait_until(bell, i, spins);
    }
  });
  Random random(4);
  for (std::uint32_t i = 1; i <= kTurns; ++i) {
    while (waits.load() < i) std::this_thread::yield();
    idle(random.below(400));
    notify(bell);
  }
  waiter.join();
}

// A few dozen instructions lie between the waiter's last check and its sleep. Up to four ringers ring at random moments
// around them, thousands of times, and the waits below need every ring.
TEST(no_wake_up_is_lost) {
  for (std::uint32_t ringers : {1, 2, 4}) {
    for (std::uint32_t count : kCounts) {
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
      SpinPolicy spins = none();
      for (std::uint32_t i = 1; i <= kTurns; ++i) {
        turn.store(i, std::memory_order_relaxed);
        idle(random.below(600));
        wait_until(bell, count + i * ringers, spins);
      }
      for (std::thread& thread : threads) thread.join();
      CHECK_EQ(bell.notified.load(), count + kTurns * ringers);
    }
  }
}

#if REMUDA_LINUX
// Stops the ringer after n instructions, for every n. Meanwhile the waiter falls asleep, unless the bell is already
// rung.
TEST(no_wake_up_is_lost_wherever_the_ringer_is_overtaken) {
  if (!Stepped::is_possible()) return;
  at_every_instruction([](int instructions) {
    Shared<Bell> bell;
    Stepped ringer([&] { notify(*bell); });
    const auto state = ringer.steps(instructions);
    std::thread waiter([&] {
      SpinPolicy spins = none();
      wait_until(*bell, 1, spins);
    });
    while (bell->sleeping.load() == 0 && !reached(*bell, 1)) std::this_thread::yield();
    ringer.finish();
    waiter.join();
    return state == Stepped::State::kEnded;
  });
}
#endif

// After a wait, the waiter sees all data that the ringer wrote before it rang.
TEST(the_bell_publishes_what_was_written_before_it) {
  Bell bell{};
  Bell answer{};
  std::uint64_t value = 0;
  std::thread waiter([&] {
    SpinPolicy spins = none();
    for (std::uint32_t i = 1; i <= 2000; ++i) {
      wait_until(bell, i, spins);
      CHECK_EQ(value, i);
      value += 1'000'000;
      notify(answer);
    }
  });
  SharedCores cores{};
  SpinPolicy spins(cores, 0, std::chrono::microseconds(50));
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    value = i;
    notify(bell);
    wait_until(answer, i, spins);
    CHECK_EQ(value, i + 1'000'000);
  }
  waiter.join();
}

// Compares the bell with a plain counter, for a random order of rings and waits that depends only on the seed.
TEST(a_seeded_schedule_of_rings_and_looks) {
  Random random(6);
  for (int run = 0; run < 200; ++run) {
    Bell bell{};
    SpinPolicy spins = none();
    auto start = static_cast<std::uint32_t>(random.bits());
    if (run % 2 == 0) start = 0U - static_cast<std::uint32_t>(random.below(300));
    bell.notified = start;
    std::uint64_t notified = 0, target = 0;  // counted from `start`, without a wrap-around
    for (int turn = 0; turn < 100; ++turn) {
      switch (random.below(3)) {
        case 0: {
          auto count = static_cast<std::uint32_t>(random.below(5));
          notify(bell, count);
          notified += count;
          break;
        }
        case 1:
          target = notified + random.below(8);
          if (target >= 4) target -= 4;
          break;
        case 2:
          wait(bell, start + static_cast<std::uint32_t>(target), Nanoseconds(0), spins);
          break;
      }
      CHECK_EQ(reached(bell, start + static_cast<std::uint32_t>(target)), notified >= target);
      CHECK_EQ(bell.sleeping.load(), 0U);
    }
  }
}

TEST(a_patient_waiter_does_not_sleep) {
  Bell bell{};
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    SharedCores cores{};
    SpinPolicy spins(cores, 0, kForever, true);
    waiting = true;
    wait_until(bell, 1, spins);
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
  SharedCores cores{};
  SpinPolicy spins(cores, 0, Nanoseconds(0));                          // it does not spin
  for (std::uint32_t i = 1; spins.wake_up() == Nanoseconds(0); ++i) {  // those that are late do not count
    std::thread waiter([&] { wait_until(bell, i, spins); });
    wait_until_asleep(bell);
    notify(bell);
    waiter.join();
  }
  CHECK(spins.wake_up() < SpinPolicy::kAway);
}

#if REMUDA_LINUX

TEST(a_sleeper_in_another_process_is_woken) {
  Shared<Bell> bell, answer;
  SpinPolicy spins = none();
  pid_t child = fork();
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    if (child == 0) {
      wait_until(*bell, i, spins);
      notify(*answer);
    } else {
      if (i % 2 == 0) wait_until_asleep(*bell);
      notify(*bell);
      wait_until(*answer, i, spins);
    }
  }
  if (child == 0) _exit(0);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

#endif
