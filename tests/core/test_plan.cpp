// Tests that the regions of the arena do not overlap and are aligned.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "random.hpp"
#include "shm/plan.hpp"

using namespace remuda;

namespace {

struct Region {
  std::uint64_t begin, bytes;
};

Plan random_plan(Random& random) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random.below(n)); };
  const auto sizes = [&](std::uint64_t count) {
    std::vector<std::uint64_t> sizes(count);
    for (std::uint64_t& size : sizes) size = random.below(4) == 0 ? random.below(30000) : random.below(100);
    return sizes;
  };
  Plan plan{.workers = 1 + below(20), .frames = 1 + below(6), .ring_capacity = 2U << below(8)};
  plan.slots = plan.workers * (1 + below(8));
  plan.envs = plan.slots + below(3);
  plan.blob_bytes = 64 * below(100);
  plan.action_bytes = sizes(below(4));
  plan.column_bytes = sizes(kFirstLeaf + below(6));
  plan.keeps_last = random.coin();
  plan.log_entries = below(3) * below(100);
  plan.log_object_bytes = below(1000);
  plan.resumes = plan.log_entries != 0 && random.coin();
  plan.lay_out();
  return plan;
}

std::vector<Region> regions_of(const Plan& plan) {
  const std::uint64_t blobs = sizeof(BlobHeader) + plan.blob_bytes;
  std::vector<Region> regions = {{0, sizeof(ArenaHeader)},
                                 {Plan::kPoolBell, sizeof(Bell)},
                                 {Plan::kRecords, sizeof(Records)},
                                 {Plan::kCores, sizeof(SharedCores)},
                                 {plan.progress, sizeof(Progress) * plan.envs},
                                 {plan.env_figures, sizeof(EnvFigures) * plan.envs},
                                 {plan.worker_figures, sizeof(WorkerFigures) * plan.workers},
                                 {plan.caller_figures, sizeof(CallerFigures)}};
  for (std::uint32_t w = 0; w < plan.workers; ++w) {
    regions.push_back({plan.bell(w), sizeof(Bell)});
    regions.push_back({plan.meter(w), sizeof(Meter)});
    regions.push_back({plan.commands(w), ring_bytes<Command>(plan.ring_capacity)});
    regions.push_back({plan.results(w), ring_bytes<Result>(plan.ring_capacity)});
    regions.push_back({plan.blobs_in(w), blobs});
    regions.push_back({plan.blobs_out(w), blobs});
  }
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    regions.push_back({plan.actions[i], plan.action_bytes[i] * plan.slots});
  for (std::size_t i = 0; i < plan.columns.size(); ++i)
    regions.push_back({plan.columns[i], plan.column_bytes[i] * plan.rows()});
  if (plan.log_entries == 0) return regions;
  regions.push_back({plan.log_headers, sizeof(LogHeader) * plan.envs});
  regions.push_back({plan.log_beginnings, sizeof(LogBeginning) * LogBeginning::kPlaces * plan.envs});
  regions.push_back({plan.log_kinds, plan.log_rows()});
  regions.push_back({plan.log_objects, plan.log_object_bytes * plan.envs});
  if (plan.resumes) {
    regions.push_back({plan.log_places, sizeof(LogPlace) * plan.envs});
    regions.push_back({plan.log_digests, sizeof(std::uint64_t) * plan.log_rows()});
  }
  for (std::size_t i = 0; i < plan.log_actions.size(); ++i)
    regions.push_back({plan.log_actions[i], plan.action_bytes[i] * plan.log_rows()});
  return regions;
}

}  // namespace

TEST(nothing_overlaps_and_everything_is_aligned) {
  Random random(8);
  for (int run = 0; run < 500; ++run) {
    Plan plan = random_plan(random);
    CHECK_EQ(plan.ports.size(), plan.workers);
    CHECK_EQ(plan.actions.size(), plan.action_bytes.size());
    CHECK_EQ(plan.columns.size(), plan.column_bytes.size());
    std::vector<Region> regions = regions_of(plan);
    std::stable_sort(regions.begin(), regions.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
    std::uint64_t end = 0;
    for (const Region& region : regions) {
      CHECK_EQ(region.begin % 64, 0U);  // a cache line
      CHECK(region.bytes == 0 || region.begin >= end);
      end = std::max(end, region.begin + region.bytes);
    }
    CHECK(plan.bytes >= end);
  }
}

TEST(room_beyond_4_gigabytes_is_counted_right) {
  Plan plan{.workers = 1, .slots = 1000, .envs = 1000, .frames = 65, .ring_capacity = 2048};
  plan.column_bytes = {8, 1, 1, 8, 0, 1 << 20};
  plan.lay_out();
  CHECK(plan.bytes > (65'000ULL << 20));
}
