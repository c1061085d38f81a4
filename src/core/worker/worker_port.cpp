#include "worker/worker_port.hpp"

#include <utility>

namespace remuda {

WorkerPort::WorkerPort(const Arena& arena, const Plan& plan, const WorkerSpec& spec)
    : commands_(arena.at<RingHeader>(plan.commands(spec.index)), plan.ring_capacity),
      results_(arena.at<RingHeader>(plan.results(spec.index)), plan.ring_capacity),
      blobs_in_(arena.at<BlobHeader>(plan.blobs_in(spec.index)), plan.blob_bytes),
      blobs_out_(arena.at<BlobHeader>(plan.blobs_out(spec.index)), plan.blob_bytes),
      bell_(*arena.at<Bell>(plan.bell(spec.index))),
      ringer_(arena.at<Bell>(Plan::kPoolBell)),
      spin_policy_(*arena.at<SharedCores>(Plan::kCores), spec.index, Nanoseconds(spec.spin_ns), spec.ignore_load),
      arena_(arena),
      slots_(plan.slots),
      publish_ns_(spec.publish_ns) {}

// Extends the previous result by this one if they have neighbouring envs and rows. Then one record covers both. A slow
// step is not joined, because its record keeps the times of the step.
bool WorkerPort::join_run(const Result& result) {
  Result* run = results_.unpublished();
  if (run == nullptr || run->flags != 0 || result.flags != 0) return false;
  // Results of different commands may belong to different parts of the pool.
  if (run->sequence != result.sequence) return false;
  if (result.end_ns - result.begin_ns >= publish_ns_) return false;
  if (run->env + run->count != result.env || run->row + run->count != result.row) return false;
  run->count += result.count;
  run->end_ns = result.end_ns;
  if (result.reset_begin_ns != 0) {
    run->reset_env = result.reset_env;
    run->reset_begin_ns = result.reset_begin_ns;
    run->reset_end_ns = result.reset_end_ns;
  }
  return true;
}

void WorkerPort::publish(bool is_all, std::uint64_t now) {
  last_publish_ = now;
  if (unpublished_ != 0) results_.publish();
  const std::uint32_t count = std::exchange(unpublished_, 0);
  if (is_all)
    ringer_.ring_for_all(count);
  else
    ringer_.ring_for_some(count);
  if (std::exchange(wakes_supervisor_, false)) arena_.wakeup().wake();
}

}  // namespace remuda
