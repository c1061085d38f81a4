// Tests that the CpuMeter subtracts spinning from the thread's CPU time, and rarely makes a system call.
#include "check.hpp"
#include "os/platform.hpp"
#include "worker/task_meter.hpp"

using namespace remuda;

namespace {

std::uint64_t cpu = 0;
const auto kFake = [] { return cpu; };
constexpr Nanoseconds kNone{0};

}  // namespace

TEST(what_was_used_since_the_last_look_counts_once) {
  cpu = 1000;
  CpuMeter meter(kFake);
  meter.begin(kNone);
  cpu += 300;
  CHECK_EQ(meter.used(1, kNone), 300U);
  CHECK_EQ(meter.used(2, kNone), 0U);
  cpu += 20;
  CHECK_EQ(meter.used(3, kNone), 20U);
}

TEST(what_was_used_before_it_began_does_not_count) {
  cpu = 1000;
  CpuMeter meter(kFake);
  meter.begin(kNone);
  cpu += 300;
  meter.begin(kNone);
  cpu += 7;
  CHECK_EQ(meter.used(1, kNone), 7U);
}

TEST(spinning_does_not_count) {
  cpu = 0;
  CpuMeter meter(kFake);
  meter.begin(Nanoseconds(5000));  // the thread had spun for 5000 ns before
  cpu += 1000;
  CHECK_EQ(meter.used(1, Nanoseconds(5400)), 600U);
  cpu += 1000;
  CHECK_EQ(meter.used(2, Nanoseconds(5400)), 1000U);
  cpu += 100;
  CHECK_EQ(meter.used(3, Nanoseconds(9000)), 0U);  // more spinning than CPU time
  cpu += 100;
  CHECK_EQ(meter.used(4, Nanoseconds(9000)), 100U);
}

TEST(a_look_is_due_once_a_millisecond) {
  CpuMeter meter(kFake);
  meter.begin(kNone);
  std::uint64_t now = 50 * CpuMeter::kInterval;
  CHECK(meter.is_due(now));
  meter.used(now, kNone);
  CHECK(!meter.is_due(now));
  CHECK(!meter.is_due(now + CpuMeter::kInterval - 1));
  CHECK(meter.is_due(now + CpuMeter::kInterval));
}

TEST(the_systems_own_clock_goes_on_while_the_thread_works) {
  CpuMeter meter;
  meter.begin(kNone);
#if REMUDA_LINUX
  std::uint64_t used = 0;
  while (used < 1'000'000) used += meter.used(1, kNone);
#endif
}
