// Tests of the CPU time of a worker, of the time of a pool's caller, and of the rule that tells whether the caller
// sleeps.
#include "check.hpp"
#include "pool/hub/caller_meter.hpp"
#include "shm/figures.hpp"
#include "worker/cpu_meter.hpp"

using namespace remuda;

namespace {

// The simulated time, and the simulated CPU time of the thread.
std::uint64_t now = 0, cpu = 0;

// A pool's caller at 1000 ns.
struct Caller {
  Caller() { now = cpu = 1000; }

  CallerFigures figures{};
  SharedCores cores{};
  CallerMeter meter{figures, cores, [] { return now; }, [] { return cpu; }};
};

// Takes a batch: 3 ns to check and send, 50 ns of waiting, 4 ns to make the batch, then 100 ns of the caller's own
// code, `busy` of them on a core.
void take_batch(CallerMeter& meter, std::uint64_t busy = 100) {
  {
    const CallerMeter::Call call(meter);
    meter.note_sending();
    now += 3 + 50;
    meter.note_waited(50);
    now += 4;
    meter.hand_over();
  }
  now += 100;
  cpu += busy;
}

}  // namespace

TEST(one_batch_in_sixteen_is_timed) {
  Caller caller;
  auto& [figures, cores, meter] = caller;
  for (int i = 0; i < 33; ++i) take_batch(meter);
  CHECK_EQ(figures.began_ns.load(), 1000U);
  CHECK_EQ(meter.batches(), 33U);
  CHECK_EQ(meter.waited_ns(), 33U * 50);
  CHECK_EQ(figures.sampled.load(), 3U);
  CHECK_EQ(figures.gathering_ns.load(), 3U * 7);
}

TEST(sending_and_receiving_apart_count_together_and_what_lies_between_does_not) {
  Caller caller;
  auto& [figures, cores, meter] = caller;
  {
    const CallerMeter::Call send(meter);
    meter.note_sending();
    now += 5;
  }
  now += 1000;  // the caller's own code runs
  {
    CallerMeter::Call wait(meter);
    meter.note_waited(20);
    now += 20 + 2;
    wait.goes_on();
  }
  now += 1;
  meter.hand_over();
  CHECK_EQ(figures.sampled.load(), 1U);
  CHECK_EQ(figures.gathering_ns.load(), 8U);
}

TEST(a_call_without_a_batch_is_timed_too) {
  Caller caller;
  auto& [figures, cores, meter] = caller;
  {
    const CallerMeter::Call call(meter);
    now += 6;
  }
  now += 1'000'000;
  take_batch(meter);
  CHECK_EQ(figures.gathering_ns.load(), 6U + 7U);
  CHECK_EQ(figures.sampled.load(), 1U);
}

TEST(a_caller_that_sleeps_in_its_own_code_is_noted_with_one_batch_in_sixteen) {
  Caller caller;
  auto& [figures, cores, meter] = caller;
  const auto take_batches = [&](std::uint64_t busy) {
    for (std::uint64_t i = 0; i < CallerMeter::kEvery; ++i) take_batch(meter, busy);
  };
  take_batches(100);
  CHECK_EQ(cores.caller_sleeps.load(), 0U);
  take_batches(49);
  CHECK_EQ(cores.caller_sleeps.load(), 0U);  // the sixteenth batch begins a measurement, and the next call ends it
  take_batch(meter, 100);
  CHECK_EQ(cores.caller_sleeps.load(), 1U);
  take_batches(100);
  CHECK_EQ(cores.caller_sleeps.load(), 0U);
}

TEST(spinning_does_not_count) {
  cpu = 0;
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
