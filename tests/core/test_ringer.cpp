// Tests that a ringer delays rings only while the waiter does not need them.
//
// The waits have no useful time limit. If a ring never comes, the test hangs until the test runner's timeout.
#include <thread>

#include "check.hpp"
#include "ipc/ring.hpp"
#include "ipc/ringer.hpp"
#include "random.hpp"

#if REMUDA_LINUX
#include "shared.hpp"
#include "stepped.hpp"
#endif

using namespace remuda;

namespace {

constexpr Nanoseconds kForever = std::chrono::hours(24);

}  // namespace

TEST(who_wants_each_hears_of_each) {
  Bell bell{};
  Ringer ringer(&bell);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    ringer.ring_for_some(1);
    CHECK_EQ(bell.notified.load(), i);
  }
  ringer.ring_for_all(3);
  CHECK_EQ(bell.notified.load(), 8U);
}

TEST(who_wants_all_hears_of_it_once) {
  Bell bell{};
  Ringer ringer(&bell);
  want_all(bell, true);
  for (int i = 0; i < 5; ++i) {
    ringer.ring_for_some(2);
    CHECK_EQ(bell.notified.load(), 0U);
  }
  ringer.ring_for_all(1);
  CHECK_EQ(bell.notified.load(), 11U);
  ringer.ring_for_all(0);
  CHECK_EQ(bell.notified.load(), 11U);
}

TEST(who_changes_his_mind_hears_of_what_was_kept) {
  Bell bell{};
  Ringer ringer(&bell);
  want_all(bell, true);
  ringer.ring_for_some(2);
  want_all(bell, false);
  ringer.ring_for_some(1);
  CHECK_EQ(bell.notified.load(), 3U);
}

TEST(a_sleeper_who_wants_all_is_woken_by_the_last_of_several) {
  constexpr std::uint32_t kRingers = 3, kBits = 20, kTurns = 500;
  Bell bell{}, start{};
  std::vector<std::thread> ringers;
  for (std::uint32_t r = 0; r < kRingers; ++r) {
    ringers.emplace_back([&] {
      Ringer ringer(&bell);
      for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
        while (!reached(start, turn)) std::this_thread::yield();
        for (std::uint32_t i = 1; i < kBits; ++i) ringer.ring_for_some(1);
        ringer.ring_for_all(1);
      }
    });
  }
  SpinPolicy none;
  for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
    want_all(bell, turn % 3 != 0);
    notify(start);
    const std::uint32_t target = turn * kRingers * kBits;
    while (!reached(bell, target)) wait(bell, target, kForever, none);
    CHECK_EQ(bell.notified.load(), target);
  }
  for (std::thread& ringer : ringers) ringer.join();
}

#if REMUDA_LINUX

namespace {

struct Line {
  Bell bell;
  RingHeader header;
  std::uint32_t records[8];
};

}  // namespace

// Stops the ringer after n instructions, for every n, while it publishes a record. The waiter then sets `wants_all` to
// false. It must find the record at once, or be woken when the ringer continues.
TEST(nothing_is_overlooked_when_the_waiter_changes_his_mind) {
  if (!Stepped::is_possible()) return;
  at_every_instruction([](int instructions) {
    Shared<Line> line;
    want_all(line->bell, true);
    Stepped ringer([&] {
      RingProducer<std::uint32_t> producer(&line->header, 8);
      Ringer ringer(&line->bell);
      producer.push(7);
      producer.publish();
      ringer.ring_for_some(1);
    });
    const auto state = ringer.steps(instructions);
    std::thread waiter([&] {
      RingConsumer<std::uint32_t> consumer(&line->header, 8);
      want_all(line->bell, false);
      SpinPolicy none;
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
    want_all(line->bell, true);
    Stepped::State state;
    {
      Stepped ringer([&] {
        RingProducer<std::uint32_t> producer(&line->header, 8);
        Ringer ringer(&line->bell);
        producer.push(7);
        producer.publish();
        ringer.ring_for_some(1);
        producer.push(8);
        producer.publish();
        ringer.ring_for_all(1);
      });
      state = ringer.steps(instructions);
    }  // the destructor kills the ringer if it has not ended
    RingConsumer<std::uint32_t> consumer(&line->header, 8);
    std::uint32_t record = 0, seen = 0;
    while (consumer.front(record)) {
      CHECK_EQ(record, 7 + seen++);
      consumer.consume();
    }
    const std::uint32_t counted = line->bell.notified.load();
    CHECK(counted == 0 || counted == 2);
    CHECK(counted <= seen);
    return state == Stepped::State::kEnded;
  });
}

#endif
