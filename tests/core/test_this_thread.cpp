// Tests of the kernel's data about the calling thread, and of its migration to another core.
#include "check.hpp"
#include "os/platform.hpp"
#include "os/this_thread.hpp"

#if REMUDA_LINUX
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>
#endif

using namespace remuda;

#if REMUDA_LINUX

namespace {

// Returns the CPUs that this thread may run on.
std::vector<int> allowed() {
  cpu_set_t set;
  CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  CHECK_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

}  // namespace

TEST(a_thread_goes_to_a_core_and_may_leave_it_again) {
  std::thread([] {
    const std::vector<int> before = allowed();
    for (int cpu : before) {
      move_to_core(static_cast<std::uint32_t>(cpu));
      CHECK(allowed() == before);
    }
    for (int cpu : before) {
      stay_on(cpu);
      const std::uint32_t here = current_core();
      CHECK(here <= static_cast<std::uint32_t>(cpu));               // A core has the lowest number of its CPUs.
      move_to_core(static_cast<std::uint32_t>(before.back()) + 1);  // a core that this thread may not use
      move_to_core(~std::uint32_t{0});                              // a core that does not exist
      CHECK_EQ(current_core(), here);
      CHECK(allowed() == std::vector<int>{cpu});
    }
  }).join();
}

// Two threads that share one core preempt each other, although neither of them sleeps.
TEST(a_thread_that_loses_its_core_knows_for_how_long) {
  const int cpu = allowed().front();
  std::atomic<bool> done{false};
  std::thread other([&] {
    stay_on(cpu);
    while (!done) sched_yield();
  });
  std::thread([&] {
    stay_on(cpu);
    const std::uint64_t before = waited_for_core_ns();
    while (waited_for_core_ns() < before + 1'000'000) sched_yield();
  }).join();
  done = true;
  other.join();
}

TEST(cpu_time_is_the_threads_own) {
  const std::uint64_t before = thread_cpu_ns();
  std::thread([] {
    while (thread_cpu_ns() < 20'000'000) {
    }
  }).join();
  CHECK(thread_cpu_ns() - before < 20'000'000);
}

#endif
