// Tests that the caller's wait ends once the bell has been rung often enough, and that the right workers may ring and
// spin meanwhile.
#include <thread>

#include "check.hpp"
#include "pool/workers/pool_bell.hpp"
#include "waiting.hpp"

using namespace remuda;

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

TEST(one_worker_leaves_its_core_to_the_caller) {
  Waiting waiting;
  waiting.bell.appoint_sleeper(3);
  CHECK_EQ(waiting.cores.sleeper.load(), 4U);
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
