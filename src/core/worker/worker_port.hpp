// The worker's end of its rings: commands come in, results go out, and bells ring on both sides.
//
// What goes through the socket is not its business.
#pragma once

#include <cstdint>

#include "ipc/ringer.hpp"
#include "ipc/spin_policy.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"
#include "worker/worker_spec.hpp"

namespace remuda {

class WorkerPort {
 public:
  WorkerPort(const Arena& arena, const Plan& plan, const WorkerSpec& spec);

  // -- in ------------------------------------------------------------------------------------------------------

  bool has_command() const { return !commands_.empty(); }
  bool pop(Command& command) { return commands_.pop(command); }
  // What came with the command that was taken last: parts, see `PartBytes`.
  nb::object read_blob();

  // The count that the bell will have with the next ring.
  std::uint32_t next_ring() const { return bell_.notified.load(std::memory_order_acquire) + 1; }
  // Until then, or for a slice.
  void await(std::uint32_t ring, std::uint64_t now) {
    wait(bell_, ring, kSlice, spin_policy_, Clock::time_point(Nanoseconds(now)));
  }
  // Any thread may call it.
  void wake() { notify(bell_); }
  Nanoseconds spun() const { return spin_policy_.spun(); }

  // -- out -----------------------------------------------------------------------------------------------------

  // False where there is no room: nothing was written.
  bool write_blob(nb::handle parts);
  // Written, and seen by the pool after `publish`.
  void push(const Result& result) {
    if (!join_run(result)) results_.push(result);
    unpublished_ += result.count;
  }
  // A batch of commands begins.
  void begin(std::uint64_t now) { last_publish_ = now; }
  // Whether results have waited for long enough.
  bool is_due(std::uint64_t now) const { return now - last_publish_ >= publish_ns_; }
  // `is_all`: nothing else is under way; or nothing will be before the pool has seen to this.
  void publish(bool is_all, std::uint64_t now);

 private:
  bool join_run(const Result& result);

  RingConsumer<Command> commands_;
  RingProducer<Result> results_;
  BlobReader blobs_in_;
  BlobWriter blobs_out_;
  Bell& bell_;
  Ringer ringer_;  // for the pool
  SpinPolicy spin_policy_;
  const std::uint64_t publish_ns_;
  std::uint64_t last_publish_ = 0;
  std::uint32_t unpublished_ = 0;  // results since then
};

}  // namespace remuda
