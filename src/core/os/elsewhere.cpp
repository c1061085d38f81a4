// The functions of this folder on other systems than Linux, where there are no worker processes. They do nothing, and
// return that nothing is known.
#include "os/descriptors.hpp"
#include "os/platform.hpp"
#include "os/process_group.hpp"
#include "os/process_tree.hpp"
#include "os/signals.hpp"
#include "os/this_thread.hpp"
#include "os/worker_threads.hpp"

#if !REMUDA_LINUX

namespace remuda {

void fill_reserve() {}
bool spend_reserve() { return false; }

void signal_group(int, int, int) {}
void signal_group_by_number(int, int, int) {}
std::optional<int> reap_group(int, int, int) { return {}; }
std::optional<int> exit_code_of(int) { return {}; }

HuntResult kill_process_tree(const std::vector<std::string>&, int) { return {}; }
bool show_keys(const std::string&) { return false; }
bool take_in_orphans() { return false; }

const std::vector<int>& job_signals() {
  static const std::vector<int> none;
  return none;
}
void follow_signals(int) {}
void stop_at(int) {}

std::uint32_t process_id() { return 0; }
std::uint32_t current_core() { return 0; }
void move_to_core(std::uint32_t) {}
std::uint64_t waited_for_core_ns() { return 0; }
std::uint64_t thread_cpu_ns() { return 0; }

void tie_life_to(int) {}
void trim_output(int, std::uint64_t) {}

}  // namespace remuda

#endif
