// Tests that each look reports a descriptor while it is readable, and the alarm once it is due.
#include "check.hpp"
#include "os/platform.hpp"
#include "pool/workers/watch.hpp"

using namespace remuda;
using namespace std::chrono_literals;

namespace {

constexpr Clock::time_point kNow{1h};

}  // namespace

TEST(looks_are_due_and_sleeps_end_after_the_interval_or_with_the_alarm) {
  Watch watch(0);
  CHECK(watch.is_due(kNow));
  watch.look(kNow);
  for (Nanoseconds alarm : {Nanoseconds(1h), Nanoseconds(1ms)}) {
    watch.listen({}, kNow + alarm);
    const Nanoseconds first = std::min(alarm, Watch::kInterval);
    CHECK(!watch.is_due(kNow + first - 1ns) && watch.is_due(kNow + first));
    CHECK(watch.longest_sleep(kNow) == first);
  }
  CHECK(watch.longest_sleep(kNow + 1s) == 0ms);
  watch.listen({}, {});
  CHECK(watch.longest_sleep(kNow) == Watch::kInterval);
}

TEST(an_alarm_is_news_until_somebody_listens_for_something_else) {
  Watch watch(0);
  watch.listen({}, kNow);
  watch.look(kNow - 1ns);
  CHECK(!watch.has_news());
  watch.look(kNow);
  CHECK(watch.has_news());
  watch.listen({}, {});
  CHECK(!watch.has_news());
  watch.look(kNow + 1h);
  CHECK(!watch.has_news());
  watch.raise_news();
  CHECK(watch.has_news());
}

#if REMUDA_LINUX

#include <unistd.h>

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

TEST(processes_that_have_ended_are_told_until_they_are_watched_no_more) {
  Pipe first, second;
  Watch watch(3);
  watch.set_process(0, first.fd());
  watch.set_process(2, second.fd());
  CHECK(watch.look(kNow).empty());
  second.fill();
  for (int i = 0; i < 2; ++i) CHECK(watch.look(kNow) == std::vector<std::uint32_t>{2});
  first.fill();
  CHECK_EQ(watch.look(kNow).size(), 2u);
  watch.set_process(2, -1);
  CHECK(watch.look(kNow) == std::vector<std::uint32_t>{0});
  CHECK(!watch.has_news());  // the end of a process is no news
}

TEST(what_is_listened_to_is_news_and_no_process) {
  Pipe relay, other;
  Watch watch(1);
  watch.set_relay(relay.fd());
  watch.listen({other.fd()}, {});
  CHECK(watch.look(kNow).empty() && !watch.has_news());
  other.fill();
  CHECK(watch.look(kNow).empty() && watch.has_news());
  watch.listen({}, {});
  watch.look(kNow);
  CHECK(!watch.has_news());
  relay.fill();
  watch.look(kNow);
  CHECK(watch.has_news());
}

TEST(a_descriptor_that_was_closed_takes_nobody_along) {
  Watch watch(1);
  Pipe process;
  watch.set_process(0, process.fd());
  {
    Pipe gone;
    watch.listen({gone.fd()}, {});
  }
  Pipe reused;  // has the descriptor number of `gone`
  watch.listen({}, {});
  process.fill();
  CHECK_EQ(watch.look(kNow).size(), 1u);
}

#endif
