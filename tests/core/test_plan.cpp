// Tests that the regions of the arena do not overlap and are aligned.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "random.hpp"
#include "shm/plan.hpp"

using namespace remuda;

namespace {

struct Region {
  std::uint64_t begin, bytes, alignment;
};

Plan make_plan(std::uint32_t workers, std::uint32_t slots, std::uint32_t envs, std::uint32_t frames,
               std::uint32_t ring_capacity, std::uint64_t blob_bytes, std::vector<std::uint64_t> action_bytes,
               std::vector<std::uint64_t> column_bytes, bool keeps_last = false, std::uint32_t log_entries = 0,
               std::uint64_t log_object_bytes = 0) {
  Plan plan{workers,
            slots,
            envs,
            frames,
            ring_capacity,
            blob_bytes,
            std::move(action_bytes),
            std::move(column_bytes),
            1,  // the width of an env, which does not affect the offsets
            keeps_last,
            log_entries,
            log_object_bytes};
  plan.lay_out();
  return plan;
}

Plan random_plan(Random& random) {
  auto sizes = [&](std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint64_t> sizes(first + count, 8);
    for (std::uint64_t& size : sizes) size = random.below(4) == 0 ? random.below(30000) : random.below(100);
    return sizes;
  };
  auto workers = static_cast<std::uint32_t>(random.between(1, 20));
  const std::uint32_t slots = workers * static_cast<std::uint32_t>(random.between(1, 8));
  return make_plan(workers, slots, slots + static_cast<std::uint32_t>(random.below(3)),
                   static_cast<std::uint32_t>(random.between(1, 6)), 2U << random.below(8), 64 * random.below(100),
                   sizes(0, random.below(4)), sizes(kFirstLeaf, random.below(6)), random.below(2) == 0,
                   static_cast<std::uint32_t>(random.below(3) * random.below(100)), random.below(1000));
}

std::vector<Region> regions_of(const Plan& plan) {
  const std::uint64_t line = 64, blobs = sizeof(BlobHeader) + plan.blob_bytes;
  std::vector<Region> regions = {{0, sizeof(ArenaHeader), line},
                                 {Plan::kPoolBell, sizeof(Bell), line},
                                 {Plan::kRecords, sizeof(Records), line},
                                 {Plan::kCores, sizeof(SharedCores), line}};
  for (std::uint32_t w = 0; w < plan.workers; ++w) {
    regions.push_back({plan.bell(w), sizeof(Bell), line});
    regions.push_back({plan.meter(w), sizeof(Meter), line});
    regions.push_back({plan.commands(w), ring_bytes<Command>(plan.ring_capacity), line});
    regions.push_back({plan.results(w), ring_bytes<Result>(plan.ring_capacity), line});
    regions.push_back({plan.blobs_in(w), blobs, line});
    regions.push_back({plan.blobs_out(w), blobs, line});
  }
  regions.push_back({plan.progress, sizeof(Progress) * plan.envs, line});
  regions.push_back({plan.env_figures, sizeof(EnvFigures) * plan.envs, line});
  regions.push_back({plan.worker_figures, sizeof(WorkerFigures) * plan.workers, line});
  regions.push_back({plan.caller_figures, sizeof(CallerFigures), line});
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    regions.push_back({plan.actions[i], plan.action_bytes[i] * plan.slots, line});
  for (std::size_t i = 0; i < plan.columns.size(); ++i)
    regions.push_back({plan.columns[i], plan.column_bytes[i] * plan.rows(), line});
  if (plan.log_entries == 0) return regions;
  regions.push_back({plan.log_headers, sizeof(LogHeader) * plan.envs, line});
  regions.push_back({plan.log_beginnings, sizeof(LogBeginning) * LogBeginning::kPlaces * plan.envs, line});
  regions.push_back({plan.log_kinds, plan.log_rows(), line});
  regions.push_back({plan.log_objects, plan.log_object_bytes * plan.envs, line});
  for (std::size_t i = 0; i < plan.log_actions.size(); ++i)
    regions.push_back({plan.log_actions[i], plan.action_bytes[i] * plan.log_rows(), line});
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
      CHECK_EQ(region.begin % region.alignment, 0U);
      CHECK(region.bytes == 0 || region.begin >= end);
      end = std::max(end, region.begin + region.bytes);
    }
    CHECK(plan.bytes >= end);
  }
}

TEST(last_rows_lie_beyond_the_frames_and_alternate) {
  Plan plan = make_plan(2, 6, 8, 3, 64, 1024, {8}, {8, 1, 1, 8, 0, 400, 3}, true);
  CHECK_EQ(plan.rows(), 34U);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t env = 0; env < 8; ++env)
    for (std::uint64_t n : {7, 8}) rows.push_back(plan.kept_row(env, n));
  std::sort(rows.begin(), rows.end());
  for (std::uint32_t i = 0; i < rows.size(); ++i) CHECK_EQ(rows[i], 18 + i);
  CHECK_EQ(plan.kept_row(4, 7), plan.kept_row(4, 9));
}

TEST(a_task_is_an_op_and_when_it_began) {
  for (Op op :
       {Op::kReset, Op::kStep, Op::kObserve, Op::kMessage, Op::kClose, Op::kResetIntoRow, Op::kRebuild, Op::kPrepare}) {
    const std::uint64_t task = Task::pack(op, 123'456'789);
    CHECK(Task::is_sound(task));
    CHECK(Task::op(task) == op);
    CHECK(Task::begin_ns(task) <= 123'456'789 && 123'456'789 - Task::begin_ns(task) < 16);
    CHECK(!Task::is_over(task, 123'456'789));
    CHECK(Task::is_over(task, 123'456'800));
  }
  CHECK(!Task::is_sound(0));
  CHECK(!Task::is_sound(16));
}

TEST(room_beyond_4_gigabytes_is_counted_right) {
  Plan plan = make_plan(1, 1000, 1000, 65, 2048, 0, {1}, {8, 1, 1, 8, 0, 1 << 20});
  CHECK(plan.bytes > (65'000ULL << 20));
}
