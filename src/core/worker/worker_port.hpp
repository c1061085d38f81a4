// The worker's end of its rings: receives commands, sends results, and waits for and rings bells.
//
// This class does not use the socket. Only the worker's thread may use it, except for `wake`.
#pragma once

#include <cstdint>

#include "ipc/blob_parts.hpp"
#include "ipc/protocol.hpp"
#include "ipc/ringer.hpp"
#include "ipc/spin_policy.hpp"
#include "python/numpy_api.hpp"
#include "shm/plan.hpp"

namespace remuda {

// The settings that a worker receives when it starts, in addition to the plan of the arena.
struct WorkerSpec {
  std::uint32_t index;  // The number of this worker.
  // The number of the worker's first env. Its other envs have the following numbers.
  std::uint32_t first_env;
  bool is_vector;  // Whether the worker's envs are vector envs, possibly with one sub-env each.
  Autoreset autoreset;
  // Whether the worker resets an env in advance after its episode ends, if no command is pending.
  bool resets_ahead;
  std::int64_t spin_ns;
  bool ignore_load;
  // The result of a step of at least this duration is published at once. The results of shorter steps are published
  // together.
  std::uint64_t publish_ns;
  std::uint32_t renew_every;  // The number of episodes after which an env is renewed; 0: never.
  // Whether the worker's process is replaced once it exceeds its memory limit.
  bool watches_memory;
  // Whether the hooks renew an env in the same process. Otherwise the result reports that renewal is due, and the pool
  // replaces the worker.
  bool renews_in_place;
  // Whether the pool replaces the process after it failed to create an env. Otherwise the process tries again.
  bool has_successors;
};

// The longest sleep of a worker without a command. No ring is missed while its owner lives, and other threads notice
// the owner's death (worker_threads.hpp). What remains is a signal that arrives just before the sleep.
inline constexpr Nanoseconds kIdleSlice = std::chrono::seconds(1);

class WorkerPort {
 public:
  WorkerPort(const Arena& arena, const Plan& plan, const WorkerSpec& spec);

  // -- commands ------------------------------------------------------------------------------------------------

  bool has_command() const { return !commands_.empty(); }
  bool pop(Command& command) { return commands_.pop(command); }
  // Reads the parts that came with the last command from the blob ring.
  nb::object read_blob() { return read_parts(blobs_in_); }

  // Returns the count that the worker's bell will have after its next ring.
  std::uint32_t next_ring() const { return bell_.notified.load(std::memory_order_acquire) + 1; }
  // Waits until the count of the worker's bell reaches `ring`, but at most for kIdleSlice. `now`: the current time in
  // ns.
  void await(std::uint32_t ring, std::uint64_t now) {
    wait(bell_, ring, kIdleSlice, spin_policy_, Clock::time_point(Nanoseconds(now)));
  }
  // Rings the worker's own bell. Any thread may call this.
  void wake() { notify(bell_); }
  Nanoseconds spun() const { return spin_policy_.spun(); }

  // -- results -------------------------------------------------------------------------------------------------

  // Writes the parts of a result to the blob ring. Returns false, and writes nothing, if there is no room.
  bool write_blob(nb::handle parts) { return write_parts(blobs_out_, parts); }
  // Writes a result, which the pool sees after `publish`.
  void push(const Result& result) {
    if (!join_run(result)) results_.push(result);
    wakes_supervisor_ = wakes_supervisor_ || (result.flags & (kIsMessage | kIsFailure | kRenewalDue)) != 0;
    unpublished_ += result.count;
  }
  // Begins a batch of commands. `is_due` measures from here on.
  void begin(std::uint64_t now) { last_publish_ = now; }
  // Whether at least `publish_ns` has passed since the last `publish` or `begin`.
  bool is_due(std::uint64_t now) const { return now - last_publish_ >= publish_ns_; }
  // Makes all results visible to the pool and reports them to the pool's bell. `is_all`: the worker has no further
  // command, or is about to wait for the pool.
  void publish(bool is_all, std::uint64_t now);
  // Rings the pool's bell so often that the pool wakes up, whatever it waits for.
  void wake_pool() { ringer_.ring_for_all(slots_); }

 private:
  bool join_run(const Result& result);

  RingConsumer<Command> commands_;
  RingProducer<Result> results_;
  BlobReader blobs_in_;
  BlobWriter blobs_out_;
  Bell& bell_;
  Ringer ringer_;  // rings the pool's bell
  SpinPolicy spin_policy_;
  const Arena& arena_;
  const std::uint32_t slots_;  // the most results that the pool waits for
  const std::uint64_t publish_ns_;
  bool wakes_supervisor_ = false;  // whether an unpublished result needs the supervisor
  std::uint64_t last_publish_ = 0;
  std::uint32_t unpublished_ = 0;  // the number of results since the last `publish`
};

}  // namespace remuda
