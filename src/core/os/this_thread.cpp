#include "os/this_thread.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <string>

namespace remuda {

namespace {

// Returns the lowest number of the CPUs (hardware threads) on the same core. If that cannot be read, returns the CPU's
// own number.
std::uint32_t first_sibling(std::uint32_t cpu) {
  std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  std::uint32_t first = cpu;
  return siblings >> first ? first : cpu;
}

std::uint32_t core_of(std::uint32_t cpu) {
  // For each CPU, the number of its core, plus 1; 0: not read yet.
  static std::array<std::atomic<std::uint32_t>, 1024> cores{};
  if (cpu >= cores.size()) return cpu;
  std::atomic<std::uint32_t>& core = cores[cpu];
  if (core.load(std::memory_order_relaxed) == 0) core.store(first_sibling(cpu) + 1, std::memory_order_relaxed);
  return core.load(std::memory_order_relaxed) - 1;
}

}  // namespace

std::uint32_t process_id() { return static_cast<std::uint32_t>(getpid()); }

std::uint32_t current_core() {
  const int cpu = sched_getcpu();
  return cpu < 0 ? 0 : core_of(static_cast<std::uint32_t>(cpu));
}

void move_to_core(std::uint32_t core) {
  cpu_set_t allowed, there;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&there);
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && core_of(cpu) == core) CPU_SET(cpu, &there);
  if (CPU_COUNT(&there) == 0 || sched_setaffinity(0, sizeof there, &there) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

std::uint64_t waited_for_core_ns() {
  std::ifstream stat("/proc/thread-self/schedstat");
  std::uint64_t ran = 0, waited = 0;  // both in ns
  if (stat >> ran >> waited) return waited;
  rusage usage{};  // the kernel was built without schedstat
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nivcsw) * 1'000'000'000;
}

namespace {

std::uint64_t cpu_ns(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<std::uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(ts.tv_nsec);
}

}  // namespace

std::uint64_t thread_cpu_ns() { return cpu_ns(CLOCK_THREAD_CPUTIME_ID); }

// The clock of a thread has the thread's id, inverted, above three bits (see pthread_getcpuclockid in glibc). The main
// thread has the id of the process.
std::uint64_t main_thread_cpu_ns() {
  return cpu_ns(static_cast<clockid_t>((~static_cast<unsigned>(getpid()) << 3) | 6));
}

}  // namespace remuda

#else

namespace remuda {

std::uint32_t process_id() { return 0; }
std::uint32_t current_core() { return 0; }
void move_to_core(std::uint32_t) {}
std::uint64_t waited_for_core_ns() { return 0; }
std::uint64_t thread_cpu_ns() { return 0; }
std::uint64_t main_thread_cpu_ns() { return 0; }

}  // namespace remuda

#endif
