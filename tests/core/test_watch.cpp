// Tests that the supervisor sleeps until it is woken, a process has ended, or a time is over, and that an event wakes
// all threads.
#include <thread>
#include <vector>

#include "check.hpp"
#include "os/event.hpp"
#include "os/platform.hpp"
#include "pool/workers/watch.hpp"

using namespace remuda;
using namespace std::chrono_literals;

TEST(a_sleep_ends_when_it_is_planned_to_end) {
  Wakeup wakeup = Wakeup::create();
  Watch watch(wakeup, 0);
  watch.remind(1ms);
  CHECK(watch.wait());
  CHECK(watch.planned() == 1ms);
  watch.check_at(Clock::now() - 1s);
  CHECK(watch.wait());
  CHECK(watch.planned() == 0ms);
  watch.check_at({});
  watch.wake();
  CHECK(watch.wait());
  CHECK(watch.planned() > 1h);
  wakeup.close();
}

TEST(a_wake_before_the_sleep_is_not_lost_and_serves_one_sleep) {
  Wakeup wakeup = Wakeup::create();
  Watch watch(wakeup, 0);
  watch.wake();
  wakeup.wake();  // as a worker does
  CHECK(watch.wait());
  watch.remind(1ms);
  CHECK(watch.wait());
  CHECK(watch.planned() == 1ms);
  wakeup.close();
}

TEST(close_ends_the_sleep_and_all_later_ones) {
  Wakeup wakeup = Wakeup::create();
  Watch watch(wakeup, 0);
  std::thread closing([&] { watch.close(); });
  while (watch.wait()) {
  }
  closing.join();
  watch.wake();  // does nothing: the descriptor may be closed now
  CHECK(!watch.wait());
  wakeup.close();
}

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
        CHECK(event.wait(1h));
        CHECK(event.wait(1h));
      });
    event.set();
    event.set();
    for (std::thread& thread : threads) thread.join();
    CHECK(event.is_set());
  }
}

#if REMUDA_LINUX

TEST(the_wait_for_the_gil_is_the_time_of_workers_that_do_not_need_it) {
  Wakeup wakeup = Wakeup::create();
  for (bool need_gil : {false, true}) {
    Watch watch(wakeup, 0, need_gil);
    watch.remind(0s);
    CHECK(watch.wait());
    watch.look();
    const Nanoseconds lost = watch.clock().lost();
    watch.remind(0s);
    const auto begin = Clock::now();
    CHECK(watch.wait());
    const std::uint64_t cpu = main_thread_cpu_ns();
    while (main_thread_cpu_ns() < cpu + 150'000'000 || Clock::now() < begin + 150ms) {
    }
    const Nanoseconds busy(main_thread_cpu_ns() - cpu);
    const auto looked = watch.look();
    if (need_gil)
      CHECK((watch.clock().lost() - lost) > 100ms);
    else
      CHECK((watch.clock().lost() - lost) <= looked - begin - busy);
  }
  wakeup.close();
}

namespace {

// A pipe. Its reading end stands for a process descriptor, which becomes readable once.
struct Pipe {
  Pipe() { CHECK_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  int fd() const { return ends[0]; }
  void fill() { CHECK_EQ(write(ends[1], "x", 1), 1); }
  int ends[2];
};

}  // namespace

TEST(processes_that_have_ended_end_the_sleep_until_they_are_watched_no_more) {
  Wakeup wakeup = Wakeup::create();
  Pipe first, second;
  Watch watch(wakeup, 3);
  watch.set_process(0, first.fd());
  watch.set_process(2, second.fd());
  CHECK(watch.ended().empty());
  second.fill();
  for (int i = 0; i < 2; ++i) {
    CHECK(watch.wait());
    CHECK(watch.ended() == std::vector<std::uint32_t>{2});
  }
  first.fill();
  CHECK_EQ(watch.ended().size(), 2u);
  watch.set_process(2, -1);
  CHECK(watch.ended() == std::vector<std::uint32_t>{0});
  wakeup.close();
}

#endif
