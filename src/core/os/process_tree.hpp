// Kills the whole process tree of a worker, wherever its processes have moved.
//
// A process leaves its group when it starts a session of its own, and its parent link is lost when the parent ends. But
// all exec'd processes inherit the environment, which stays readable in /proc. So each worker's environment holds a
// key. A worker within another worker has the keys of all enclosing ones, separated by colons, the outermost first.
//
// A process is not found if it was given another environment, if it belongs to another user, or if its main thread
// ended before its other threads.
#pragma once

#include <string>
#include <vector>

namespace remuda {

inline constexpr char kFamilyVariable[] = "REMUDA_WORKER_KEY";

struct HuntResult {
  std::vector<int> survivors;  // the pids that had not ended in time
  // The `errno` value if some processes could not be checked: no /proc, or no free descriptor.
  int problem = 0;
  bool spent_reserve = false;
};

// Kills every process that carries one of `keys`, except the calling one. Searches again until none is found, because
// they may fork meanwhile. Waits up to `patience_ms` for their end, and reaps those that are children of this process.
// Allocates memory. Needs no GIL, and needs no free descriptor if `fill_reserve` has been called.
//
// Kills no other process by mistake: a pid is only a hint. The signal goes to a process descriptor, and the environment
// is read after the descriptor is opened. Linux only; elsewhere there are no worker processes.
HuntResult kill_process_tree(const std::vector<std::string>& keys, int patience_ms);

// Makes /proc show `keys` in this process's environment, so that children forked without an exec show them too. If the
// process was exec'd with other keys of the same length, these are overwritten in place. This must happen before the
// variable is changed. Otherwise it needs a kernel with CONFIG_CHECKPOINT_RESTORE. Returns whether it succeeded.
bool show_keys(const std::string& keys);

// Makes this process the parent of its orphaned descendants, in place of the first process. This process must then reap
// them. Returns whether the kernel allows it.
bool take_in_orphans();

}  // namespace remuda
