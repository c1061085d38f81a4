// Measures the CPU time of a worker's thread for statistics, with one system call per millisecond.
//
// For a thread that only runs commands and waits, the CPU time is its total minus its spinning. A thread that does
// other work between two batches (the pool's caller, if it runs the commands itself) calls `begin` before each batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ipc/clock.hpp"
#include "os/this_thread.hpp"

namespace remuda {

class CpuMeter {
 public:
  static constexpr std::uint64_t kInterval = 1'000'000;  // ns

  explicit CpuMeter(std::uint64_t (*cpu_ns)() = thread_cpu_ns) : cpu_ns_(cpu_ns) {}

  // Begins a measurement: excludes the CPU time that the thread has used so far.
  void begin(Nanoseconds spun) { look(spun); }
  // Whether kInterval has passed since the last measurement.
  bool is_due(std::uint64_t now) const { return now - looked_at_ >= kInterval; }
  // Returns the CPU time in ns that the thread used since the last measurement, without spinning. `spun`: the thread's
  // total spinning time.
  std::uint64_t used(std::uint64_t now, Nanoseconds spun) {
    const std::uint64_t before = used_;
    const Nanoseconds spun_before = spun_;
    look(spun);
    looked_at_ = now;
    // The spinning time is measured less precisely than the CPU time, so it may be the greater one.
    const auto spinning = static_cast<std::uint64_t>((spun_ - spun_before).count());
    return used_ - before - std::min(used_ - before, spinning);
  }

 private:
  void look(Nanoseconds spun) {
    used_ = cpu_ns_();
    spun_ = spun;
  }

  std::uint64_t (*cpu_ns_)();
  std::uint64_t used_ = 0;  // The total CPU time at the last measurement.
  Nanoseconds spun_{0};     // The total spinning time at the last measurement.
  std::uint64_t looked_at_ = 0;
};

}  // namespace remuda
