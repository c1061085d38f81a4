// Tests that the CpuMeter subtracts spinning from the thread's CPU time, and rarely makes a system call.
#include "check.hpp"
#include "worker/cpu_meter.hpp"

using namespace remuda;

static std::uint64_t cpu = 0;

TEST(spinning_does_not_count) {
  CpuMeter meter([] { return cpu; });
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
  CpuMeter meter;
  meter.begin({});
  std::uint64_t now = 50 * CpuMeter::kInterval;
  CHECK(meter.is_due(now));
  meter.used(now, {});
  CHECK(!meter.is_due(now));
  CHECK(!meter.is_due(now + CpuMeter::kInterval - 1));
  CHECK(meter.is_due(now + CpuMeter::kInterval));
}
