// An arena and its plan, for tests. A row of each column has 8 bytes.
#pragma once

#include <memory>

#include "shm/arena.hpp"
#include "shm/plan.hpp"

struct PlannedArena {
  PlannedArena(std::uint32_t workers, std::uint32_t envs_each, std::uint32_t frames = 2, std::uint32_t width = 1) {
    plan.workers = workers;
    plan.slots = plan.envs = workers * envs_each;
    plan.frames = frames;
    plan.ring_capacity = 8;
    plan.blob_bytes = 1024;
    plan.action_bytes = {8};
    plan.column_bytes.assign(remuda::kFirstLeaf, 8);
    plan.width = width;
    plan.lay_out();
    arena = remuda::Arena::create(plan.bytes);
  }

  remuda::Plan plan{};
  std::shared_ptr<remuda::Arena> arena;
};
