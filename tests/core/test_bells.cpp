// Tests that no wake-up is lost: before the waiter falls asleep, with several ringers, and when the count wraps around.
// A ringer delays rings only while the waiter does not need them. The caller's wait ends once the bell has been rung
// often enough, and the right workers may ring and spin meanwhile.
//
// `test_interrupted.cpp` has rings that jump over the target, a target of an earlier wait, and waits between processes.
#include <thread>
#include <vector>

#include "check.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/ring.hpp"
#include "ipc/ringer.hpp"
#include "pool/workers/pool_bell.hpp"
#include "random.hpp"
#include "trials.hpp"
#include "waiting.hpp"

#if REMUDA_LINUX
#include "shared.hpp"
#include "stepped.hpp"
#endif

using namespace remuda;

// -- the bell ------------------------------------------------------------------------------------------------

// A few dozen instructions lie between the waiter's last check and its sleep. Up to four ringers ring at random moments
// around them, thousands of times, and the waits below need every ring. After a wait, the waiter sees all data that the
// ringers wrote before they rang.
TEST(no_wake_up_is_lost_and_the_bell_publishes_what_was_written_before_it) {
  for (std::uint32_t ringers : {1, 2, 4}) {
    for (std::uint32_t count : {0U, 0xffffff80U, 0xffffffffU, 0x7fffff80U}) {
      Bell bell{};
      bell.notified = count;
      constexpr std::uint32_t kOver = 0xffffffff;
      std::atomic<std::uint32_t> turn{0};
      std::vector<std::uint64_t> written(ringers);
      std::vector<std::thread> threads;
      for (std::uint32_t r = 0; r < ringers; ++r) {
        threads.emplace_back([&, r] {
          Random random(100 * ringers + r);
          for (std::uint32_t i = 1;; ++i) {
            while (turn.load(std::memory_order_acquire) < i) std::this_thread::yield();
            if (turn.load() == kOver) return;
            idle(random.below(600));
            written[r] = i;
            notify(bell);
          }
        });
      }
      Random random(5);
      SharedCores cores{};
      const SpinPolicy spins(cores, 0, std::chrono::microseconds(50));
      std::uint32_t turns = 0;
      for (const Trials trials(3000); trials.go_on(turns);) {
        const std::uint32_t i = ++turns;
        turn.store(i, std::memory_order_release);  // the ringers may write again
        idle(random.below(600));
        wait_until(bell, count + i * ringers, i % 4 == 0 ? spins : no_spinning());
        for (const std::uint64_t value : written) CHECK_EQ(value, i);
      }
      turn = kOver;
      for (std::thread& thread : threads) thread.join();
      CHECK_EQ(bell.notified.load(), count + turns * ringers);
    }
  }
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

// -- the pool's bell -----------------------------------------------------------------------------------------

namespace {

struct Waiting {
  explicit Waiting(Nanoseconds spin = Nanoseconds(0)) : bell(shared, cores, spin, false) {}

  Bell shared{};
  SharedCores cores{};
  PoolBell bell;
};

}  // namespace

TEST(a_wait_is_over_when_the_last_ring_comes) {
  for (Nanoseconds spin : {Nanoseconds(0), Nanoseconds(std::chrono::seconds(1))}) {
    Waiting waiting(spin);
    const std::uint32_t target = waiting.bell.count() + 3;
    std::thread ringer([&] {
      for (int i = 0; i < 3; ++i) notify(waiting.shared);
    });
    while (!waiting.bell.has_reached(target)) waiting.bell.wait(target, kForever, Clock::now());
    CHECK_EQ(waiting.bell.count(), target);
    ringer.join();
  }
}

TEST(whoever_no_longer_waits_for_all_is_told_to_look_once_more) {
  Waiting waiting;
  CHECK(waiting.bell.ask_for_all(false));  // nothing changes
  CHECK(waiting.bell.ask_for_all(true));
  CHECK_EQ(waiting.shared.wants_all.load(), 1U);
  CHECK(waiting.bell.ask_for_all(true));
  CHECK(!waiting.bell.ask_for_all(false));
  CHECK_EQ(waiting.shared.wants_all.load(), 0U);
  CHECK(waiting.bell.ask_for_all(false));
}

TEST(workers_may_spin_for_one_pool_of_the_process_at_a_time) {
  Waiting first, second;
  const auto now = Clock::now() + std::chrono::seconds(1);  // later than any earlier test's pool keeps the token
  // Each wait requests the token, and ends at once.
  first.bell.wait(first.bell.count(), kForever, now);
  second.bell.wait(second.bell.count(), kForever, now);
  CHECK_EQ(first.cores.barred.load(), 0U);
  CHECK_EQ(second.cores.barred.load(), 1U);
  second.bell.wait(second.bell.count(), kForever, now + 2 * SpinToken::kKept);
  CHECK_EQ(second.cores.barred.load(), 0U);
}

// -- ringers -------------------------------------------------------------------------------------------------

TEST(rings_are_delayed_while_the_waiter_waits_for_all) {
  Bell bell{};
  Ringer ringer(&bell);
  const auto count_after = [&](auto ring, std::uint32_t count) {
    (ringer.*ring)(count);
    return bell.notified.load();
  };
  CHECK_EQ(count_after(&Ringer::ring_for_some, 1), 1U);
  CHECK_EQ(count_after(&Ringer::ring_for_some, 1), 2U);
  want_all(bell, true);
  for (int i = 0; i < 5; ++i) CHECK_EQ(count_after(&Ringer::ring_for_some, 2), 2U);
  CHECK_EQ(count_after(&Ringer::ring_for_all, 1), 13U);
  CHECK_EQ(count_after(&Ringer::ring_for_all, 0), 13U);
  CHECK_EQ(count_after(&Ringer::ring_for_some, 2), 13U);
  want_all(bell, false);
  CHECK_EQ(count_after(&Ringer::ring_for_some, 1), 16U);
}

TEST(a_sleeper_who_wants_all_is_woken_by_the_last_of_several) {
  constexpr std::uint32_t kRingers = 3, kBits = 20;
  Bell bell{}, start{};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> ringers;
  for (std::uint32_t r = 0; r < kRingers; ++r) {
    ringers.emplace_back([&] {
      Ringer ringer(&bell);
      for (std::uint32_t turn = 1;; ++turn) {
        while (!reached(start, turn) && !is_over) std::this_thread::yield();
        if (is_over) return;
        for (std::uint32_t i = 1; i < kBits; ++i) ringer.ring_for_some(1);
        ringer.ring_for_all(1);
      }
    });
  }
  std::uint32_t turn = 0;
  for (const Trials trials(500); trials.go_on(turn);) {
    ++turn;
    want_all(bell, turn % 3 != 0);
    notify(start);
    const std::uint32_t target = turn * kRingers * kBits;
    wait_until(bell, target);
    CHECK_EQ(bell.notified.load(), target);
  }
  is_over = true;
  for (std::thread& ringer : ringers) ringer.join();
}

#if REMUDA_LINUX

namespace {

struct Line {
  Bell bell;
  RingHeader header;
  std::uint32_t records[8];
};

// Returns the body of a ringer that publishes the record 7 and, if `two`, then the record 8. The waiter waits for all
// records.
auto ringer_for(Line& line, bool two) {
  want_all(line.bell, true);
  return [&line, two] {
    RingProducer<std::uint32_t> producer(&line.header, 8);
    Ringer ringer(&line.bell);
    producer.push(7);
    producer.publish();
    ringer.ring_for_some(1);
    if (!two) return;
    producer.push(8);
    producer.publish();
    ringer.ring_for_all(1);
  };
}

}  // namespace

// Stops the ringer after n instructions, for every n, while it publishes a record. The waiter then sets `wants_all` to
// false. It must find the record at once, or be woken when the ringer continues.
TEST(nothing_is_overlooked_when_the_waiter_changes_his_mind) {
  if (!Stepped::is_possible()) return;
  at_every_instruction([](int instructions) {
    Shared<Line> line;
    Stepped ringer(ringer_for(*line, false));
    const auto state = ringer.steps(instructions);
    std::thread waiter([&] {
      RingConsumer<std::uint32_t> consumer(&line->header, 8);
      want_all(line->bell, false);
      SpinPolicy none = no_spinning();
      for (;;) {
        const std::uint32_t heard = line->bell.notified.load();
        if (!consumer.empty()) return;
        wait(line->bell, heard + 1, kForever, none);
      }
    });
    while (line->bell.wants_all.load() != 0) std::this_thread::yield();
    if (state != Stepped::State::kEnded) {
      // Waits until the waiter sleeps, or can find the record.
      while (line->bell.sleeping.load() == 0 && line->header.published.load() == 0) std::this_thread::yield();
      ringer.finish();
    }
    waiter.join();
    return state == Stepped::State::kEnded;
  });
}

// A killed ringer loses only the rings that it delayed. The reader still finds every published record.
TEST(a_ringer_that_is_killed_leaves_what_it_has_published) {
  if (!Stepped::is_possible()) return;
  at_every_instruction([](int instructions) {
    Shared<Line> line;
    const auto state = Stepped(ringer_for(*line, true)).steps(instructions);  // kills the ringer if it has not ended
    RingConsumer<std::uint32_t> consumer(&line->header, 8);
    std::uint32_t record = 0, seen = 0;
    while (consumer.pop(record)) CHECK_EQ(record, 7 + seen++);
    const std::uint32_t counted = line->bell.notified.load();
    CHECK(counted == 0 || counted == 2);
    CHECK(counted <= seen);
    return state == Stepped::State::kEnded;
  });
}

#endif
