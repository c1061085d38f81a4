// Tests of the figures: the buckets of durations, the recent episodes of an env, and the time of a pool's caller.
#include <string>
#include <vector>

#include "check.hpp"
#include "pool/hub/caller_meter.hpp"
#include "shm/figures.hpp"

using namespace remuda;

TEST(buckets_follow_each_other_without_a_gap) {
  for (std::uint32_t bucket = 0; bucket + 1 < Durations::kBuckets; ++bucket) {
    const std::uint64_t first = Durations::first_of(bucket), next = Durations::first_of(bucket + 1);
    CHECK(first < next);
    CHECK_EQ(Durations::bucket_of(first), bucket);
    CHECK_EQ(Durations::bucket_of(next - 1), bucket);
    CHECK(bucket == 0 || next - first <= first / 4);
  }
  CHECK_EQ(Durations::bucket_of(0), 0U);
  CHECK_EQ(Durations::bucket_of(~0ULL), Durations::kBuckets - 1);
}

TEST(what_took_how_long_is_counted) {
  Durations durations{};
  for (std::uint64_t ns : {300, 5'000, 5'001, 1'000'000}) durations.note(ns);
  CHECK_EQ(durations.total_ns.load(), 1'010'301U);
  CHECK_EQ(durations.longest_ns.load(), 1'000'000U);
  CHECK_EQ(durations.counts[Durations::bucket_of(5'000)].load(), 2U);
  std::uint64_t all = 0;
  for (const auto& count : durations.counts) all += count.load();
  CHECK_EQ(all, 4U);
}

TEST(the_last_episodes_are_kept) {
  EnvFigures figures{};
  for (std::uint64_t n = 0; n < 40; ++n) figures.note_episode(0.5 * static_cast<double>(n), n);
  CHECK_EQ(figures.episodes.load(), 40U);
  for (std::uint64_t n = 40 - EnvFigures::kEpisodes; n < 40; ++n) {
    CHECK_EQ(figures.last[n % EnvFigures::kEpisodes].reward.load(), 0.5 * static_cast<double>(n));
    CHECK_EQ(figures.last[n % EnvFigures::kEpisodes].steps.load(), n);
  }
}

TEST(the_key_of_an_info_is_kept_as_far_as_there_is_room) {
  WorkerFigures figures{};
  const auto name_of = [&] { return reinterpret_cast<const char*>(figures.info_key); };
  figures.name_info("map", 400);
  CHECK(std::string(name_of()) == "map");
  CHECK_EQ(figures.info_bytes.load(), 400U);
  figures.name_info(std::string(100, 'k'), 500);
  CHECK(std::string(name_of()) == std::string(63, 'k'));
  figures.name_info("x", 600);
  CHECK(std::string(name_of()) == "x");
}

namespace {

// The simulated time, and the simulated CPU time of the caller.
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

TEST(a_call_that_brings_nothing_is_over_all_the_same) {
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
