#include "pool/workers/port.hpp"

#include <initializer_list>
#include <stdexcept>

namespace remuda {

namespace {

using enum WorkerState;

constexpr unsigned bits(std::initializer_list<WorkerState> states) {
  unsigned all = 0;
  for (const WorkerState state : states) all |= 1U << static_cast<unsigned>(state);
  return all;
}

// The states that may follow each state, in the order of the enumeration.
constexpr unsigned kNext[] = {
    bits({kRunning, kDead}),
    bits({kLate, kClosing, kKilled, kCorrupt, kDead}),
    bits({kRunning, kKilled, kCorrupt, kDead}),
    bits({kKilled, kCorrupt, kDead}),
    bits({kCorrupt, kDead}),
    bits({kDead}),
    bits({kStarting}),
};

}  // namespace

Port::Port(const Arena& arena, const Plan& plan, std::uint32_t worker, std::uint32_t first_env, std::uint32_t envs)
    : first_env(first_env), envs(envs), width(plan.width) {
  open_ends(arena, plan, worker);
}

void Port::become(WorkerState state) {
  if ((kNext[static_cast<unsigned>(state_)] & bits({state})) == 0)
    throw std::logic_error("a worker changes its state as port.hpp permits");
  state_ = state;
}

void Port::open_ends(const Arena& arena, const Plan& plan, std::uint32_t worker) {
  bell = arena.at<Bell>(plan.bell(worker));
  meter = arena.at<Meter>(plan.meter(worker));
  commands = {arena.at<RingHeader>(plan.commands(worker)), plan.ring_capacity};
  results = {arena.at<RingHeader>(plan.results(worker)), plan.ring_capacity};
  blobs_out = {arena.at<BlobHeader>(plan.blobs_in(worker)), plan.blob_bytes};
  blobs_in = {arena.at<BlobHeader>(plan.blobs_out(worker)), plan.blob_bytes};
}

void Port::reopen(const Arena& arena, const Plan& plan, std::uint32_t worker) {
  become(kStarting);
  for (std::uint64_t ring : {plan.commands(worker), plan.results(worker)}) arena.at<RingHeader>(ring)->reset();
  for (std::uint64_t blobs : {plan.blobs_in(worker), plan.blobs_out(worker)})
    arena.at<BlobHeader>(blobs)->consumed.store(0);
  open_ends(arena, plan, worker);  // The new ends start at the beginning of the rings.
  bell->sleeping.store(0);         // The dead worker may have left 1 here.
  meter->task.store(0);
  outstanding = 0;
  messages.clear();
  has_unpublished = false;
  heard = {};
  last_end_ns = now_ns();
}

}  // namespace remuda
