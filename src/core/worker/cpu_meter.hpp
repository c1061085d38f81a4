// How much CPU time a worker's thread uses, for statistics, at the price of a system call a millisecond.
//
// Of a thread that does nothing but run commands and wait, that is what it has used all told, less what it has spun.
// One that does other things between two batches (the pool's caller, who runs them himself) is to `begin` each anew.
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

  // What was used until now does not count.
  void begin(Nanoseconds spun) { look(spun); }
  // Whether the last look was so long ago that another one is worth its price.
  bool is_due(std::uint64_t now) const { return now - looked_at_ >= kInterval; }
  // What was used since the last look.
  std::uint64_t used(std::uint64_t now, Nanoseconds spun) {
    const std::uint64_t before = used_;
    const Nanoseconds spun_before = spun_;
    look(spun);
    looked_at_ = now;
    // How long it has spun is known less well than how much it has used.
    const auto spinning = static_cast<std::uint64_t>((spun_ - spun_before).count());
    return used_ - before - std::min(used_ - before, spinning);
  }

 private:
  void look(Nanoseconds spun) {
    used_ = cpu_ns_();
    spun_ = spun;
  }

  std::uint64_t (*cpu_ns_)();
  std::uint64_t used_ = 0;  // all told, at the last look
  Nanoseconds spun_{0};     // then
  std::uint64_t looked_at_ = 0;
};

}  // namespace remuda
