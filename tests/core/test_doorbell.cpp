// No wake-up is lost: not between the waiter's last look and its sleep, not with several ringers, not across the
// wrap-around of the count, not between processes.
//
// Waits here have no time limit worth the name: a lost wake-up does not fail a check, it hangs, and the test
// runner's timeout is what notices.
#include <thread>
#include <vector>

#include "check.hpp"
#include "ipc/doorbell.hpp"
#include "random.hpp"

#if REMUDA_LINUX
#include <sys/wait.h>
#include <unistd.h>

#include "shared.hpp"
#endif

using namespace remuda;

namespace {

constexpr Nanoseconds kForever = std::chrono::hours(24);
constexpr std::uint32_t kCounts[] = {0, 0xffffff80, 0xffffffff, 0x7fffff80};

// The waiter's whole duty: look, wait, look again.
void wait_until(Bell& bell, std::uint32_t target, Patience& patience) {
  while (!reached(bell, target)) wait(bell, target, kForever, patience);
}

void wait_until_asleep(const Bell& bell) {
  while (bell.sleeping.load() == 0) std::this_thread::yield();
}

Patience none() { return Patience(Nanoseconds(0)); }

}  // namespace

TEST(reached_compares_across_the_wrap_around) {
  Bell bell{};
  for (std::uint32_t count : {0U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    bell.rung = count;
    CHECK(reached(bell, count));
    CHECK(reached(bell, count - 1));
    CHECK(reached(bell, count - 1000));
    CHECK(!reached(bell, count + 1));
    CHECK(!reached(bell, count + 1000));
  }
}

TEST(ringing_counts) {
  Bell bell{};
  bell.rung = 0xfffffffe;
  ring(bell);
  ring(bell, 5);
  CHECK_EQ(bell.rung.load(), 4U);
}

TEST(a_bell_that_has_rung_is_not_waited_for) {
  Bell bell{};
  Patience patience = none();
  for (std::uint32_t count : kCounts) {
    bell.rung = count;
    wait(bell, count, kForever, patience);
    wait(bell, count - 3, kForever, patience);
  }
}

TEST(a_wait_ends_at_its_limit) {
  Bell bell{};
  for (Nanoseconds limit : {Nanoseconds(0), Nanoseconds(1000), Nanoseconds(2'000'000)}) {
    Patience patience(limit);
    wait(bell, 1, limit, patience);
    CHECK(!reached(bell, 1));
    CHECK_EQ(bell.sleeping.load(), 0U);
  }
}

TEST(a_sleeper_is_woken) {
  for (std::uint32_t count : kCounts) {
    Bell bell{};
    bell.rung = count;
    std::thread waiter([&] {
      Patience patience = none();
      for (std::uint32_t i = 1; i <= 300; ++i) wait_until(bell, count + i, patience);
    });
    for (std::uint32_t i = 1; i <= 300; ++i) {
      // Sometimes asleep for sure, sometimes on its way.
      if (i % 3 != 0) wait_until_asleep(bell);
      ring(bell);
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
          bell.rung = start;
          std::thread waiter([&] {
            Patience patience = none();
            wait_until(bell, start + target, patience);
          });
          wait_until_asleep(bell);
          for (std::uint32_t rung = 0; rung < target; rung += step) ring(bell, step);
          waiter.join();
        }
      }
    }
  }
}

// A target that timed out must not be taken for the one that follows it, which may be lower.
TEST(a_target_holds_for_one_wait_only) {
  Bell bell{};
  std::atomic<std::uint32_t> waits{0};
  constexpr std::uint32_t kTurns = 3000;
  std::thread waiter([&] {
    Patience patience = none();
    for (std::uint32_t i = 1; i <= kTurns; ++i) {
      wait(bell, i + 1000, Nanoseconds(0), patience);  // nobody rings so often
      waits.store(i);
      wait_until(bell, i, patience);
    }
  });
  Random random(4);
  for (std::uint32_t i = 1; i <= kTurns; ++i) {
    while (waits.load() < i) std::this_thread::yield();
    idle(random.below(400));
    ring(bell);
  }
  waiter.join();
}

// The window between the waiter's last look and its sleep is a few dozen instructions wide.  Ringers come at
// random moments around it, alone and together, thousands of times: the waits below need every ring.
TEST(no_wake_up_is_lost) {
  for (std::uint32_t ringers : {1, 2, 4}) {
    for (std::uint32_t count : kCounts) {
      Bell bell{};
      bell.rung = count;
      constexpr std::uint32_t kTurns = 3000;
      std::atomic<std::uint32_t> turn{0};
      std::vector<std::thread> threads;
      for (std::uint32_t r = 0; r < ringers; ++r) {
        threads.emplace_back([&, r] {
          Random random(100 * ringers + r);
          for (std::uint32_t i = 1; i <= kTurns; ++i) {
            while (turn.load(std::memory_order_relaxed) < i) std::this_thread::yield();
            idle(random.below(600));
            ring(bell);
          }
        });
      }
      Random random(5);
      Patience patience = none();
      for (std::uint32_t i = 1; i <= kTurns; ++i) {
        turn.store(i, std::memory_order_relaxed);
        idle(random.below(600));
        wait_until(bell, count + i * ringers, patience);
      }
      for (std::thread& thread : threads) thread.join();
      CHECK_EQ(bell.rung.load(), count + kTurns * ringers);
    }
  }
}

// What was written before ringing is there after the wait, without any other synchronisation.
TEST(the_bell_publishes_what_was_written_before_it) {
  Bell bell{};
  Bell answer{};
  std::uint64_t value = 0;
  std::thread waiter([&] {
    Patience patience = none();
    for (std::uint32_t i = 1; i <= 2000; ++i) {
      wait_until(bell, i, patience);
      CHECK_EQ(value, i);
      value += 1'000'000;
      ring(answer);
    }
  });
  Patience patience(std::chrono::microseconds(50));
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    value = i;
    ring(bell);
    wait_until(answer, i, patience);
    CHECK_EQ(value, i + 1'000'000);
  }
  waiter.join();
}

// One seed, one order of all that two sides do: the bell against a count that is obviously right.
TEST(a_seeded_schedule_of_rings_and_looks) {
  Random random(6);
  for (int run = 0; run < 200; ++run) {
    Bell bell{};
    Patience patience = none();
    auto start = static_cast<std::uint32_t>(random.bits());
    if (run % 2 == 0) start = 0U - static_cast<std::uint32_t>(random.below(300));
    bell.rung = start;
    std::uint64_t rung = 0, target = 0;  // since the start, without wrapping
    for (int turn = 0; turn < 100; ++turn) {
      switch (random.below(3)) {
        case 0: {
          auto count = static_cast<std::uint32_t>(random.below(5));
          ring(bell, count);
          rung += count;
          break;
        }
        case 1:
          target = rung + random.below(8);
          if (target >= 4) target -= 4;
          break;
        case 2:
          wait(bell, start + static_cast<std::uint32_t>(target), Nanoseconds(0), patience);
          break;
      }
      CHECK_EQ(reached(bell, start + static_cast<std::uint32_t>(target)), rung >= target);
      CHECK_EQ(bell.sleeping.load(), 0U);
    }
  }
}

TEST(a_patient_waiter_does_not_sleep) {
  Bell bell{};
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    Patience patience(kForever);
    waiting = true;
    wait_until(bell, 1, patience);
  });
  while (!waiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) {
    CHECK_EQ(bell.sleeping.load(), 0U);
    std::this_thread::yield();
  }
  ring(bell);
  waiter.join();
}

TEST(patience_is_lost_over_long_waits_and_regained_over_short_ones) {
  const Nanoseconds limit = std::chrono::microseconds(100);
  Patience patience(limit);
  CHECK(patience.budget() == limit);
  for (int i = 0; i < 100; ++i) patience.record(limit / 2);
  CHECK(patience.budget() == limit);
  for (int i = 0; i < 100; ++i) patience.record(3 * limit);
  CHECK(patience.budget() == Nanoseconds(0));
  for (int i = 0; i < 100; ++i) patience.record(limit / 2);
  CHECK(patience.budget() == limit);
}

TEST(without_a_limit_there_is_no_patience) {
  Patience patience;
  CHECK(patience.budget() == Nanoseconds(0));
  patience.record(Nanoseconds(10));
  CHECK(patience.budget() == Nanoseconds(0));
}

#if REMUDA_LINUX

TEST(a_sleeper_in_another_process_is_woken) {
  Shared<Bell> bell, answer;
  Patience patience = none();
  pid_t child = fork();
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    if (child == 0) {
      wait_until(*bell, i, patience);
      ring(*answer);
    } else {
      if (i % 2 == 0) wait_until_asleep(*bell);
      ring(*bell);
      wait_until(*answer, i, patience);
    }
  }
  if (child == 0) _exit(0);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

#endif
