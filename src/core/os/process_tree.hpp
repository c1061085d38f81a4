// Kills the whole process tree of a worker, including processes that have left its group.
//
// A process leaves its group when it starts a session of its own, and its parent link is lost when the parent ends. But
// all exec'd processes inherit the environment, which stays readable in /proc. So each worker's environment holds a
// key. A worker within another worker has the keys of all enclosing workers, separated by colons, the outermost first.
//
// A process is not found if it was given another environment, if it belongs to another user, or if its main thread
// ended before its other threads.
#pragma once

#include <string>
#include <vector>

namespace remuda {

inline constexpr char kFamilyVariable[] = "REMUDA_WORKER_KEY";

struct HuntResult {
  std::vector<int> survivors;  // The pids of killed processes that had not ended in time.
  // An `errno` value if some processes could not be checked (no /proc, or no free descriptor), else 0.
  int problem = 0;
  bool spent_reserve = false;
};

// Kills every process that has one of `keys` in its environment, except the calling process. Searches again until no
// such process is found, because the processes may fork meanwhile. Waits up to `patience_ms` for their end, and reaps
// those that are children of this process. Allocates memory. Needs no GIL, and needs no free descriptor if
// `fill_reserve` has been called.
//
// Kills no other process by mistake, even if a pid is reused: the signal goes to a process descriptor, and the
// environment is read after the descriptor is opened. Linux only; elsewhere there are no worker processes.
HuntResult kill_process_tree(const std::vector<std::string>& keys, int patience_ms);

// Makes /proc show `keys` in this process's environment, so that children forked without an exec show them too. If
// /proc shows other keys of the same length, from the exec or from an earlier call, they are overwritten in place. If
// they are from the exec, make the first call before you change the variable. Otherwise the kernel must have
// CONFIG_CHECKPOINT_RESTORE. Returns whether /proc shows the keys.
bool show_keys(const std::string& keys);

// Makes this process, instead of the first process of the system, the parent of its orphaned descendants. This process
// must then reap them. Returns whether the kernel allows it.
bool take_in_orphans();

}  // namespace remuda
