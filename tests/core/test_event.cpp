// Tests of the event that several threads wait for.
#include <thread>
#include <vector>

#include "check.hpp"
#include "os/event.hpp"

using namespace remuda;

constexpr Nanoseconds kForever = std::chrono::hours(1);

TEST(an_event_that_is_not_set_ends_no_wait) {
  Event event;
  CHECK(!event.is_set());
  CHECK(!event.wait(std::chrono::milliseconds(1)));
  CHECK(!event.wait(Nanoseconds::zero()));
}

TEST(all_threads_are_woken_and_may_wait_again) {
  for (int round = 0; round < 1000; ++round) {
    Event event;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&event] {
        CHECK(event.wait(kForever));
        CHECK(event.wait(kForever));
      });
    event.set();
    event.set();
    for (std::thread& thread : threads) thread.join();
    CHECK(event.is_set());
  }
}
