// Tests that a ringer delays rings only while the waiter does not need them.
#include <thread>

#include "check.hpp"
#include "ipc/ring.hpp"
#include "ipc/ringer.hpp"
#include "waiting.hpp"

#if REMUDA_LINUX
#include "shared.hpp"
#include "stepped.hpp"
#endif

using namespace remuda;

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
  for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
    want_all(bell, turn % 3 != 0);
    notify(start);
    const std::uint32_t target = turn * kRingers * kBits;
    wait_until(bell, target);
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
