// Kills the whole process tree of a worker: whatever was started from it, wherever that has gone.
//
// A process group is left as soon as somebody asks for a session of his own, and a parent is forgotten as soon as it
// ends.  An environment is inherited by all that is exec'd and stays readable in /proc: so every worker is given a key
// there.  Workers within workers carry the keys of all they are in, separated by colons, the outermost first.
//
// Not found are processes that were given another environment, that belong to another user, or whose main thread has
// ended before the others.
#pragma once

#include <string>
#include <vector>

namespace remuda {

inline constexpr char kFamilyVariable[] = "REMUDA_WORKER_KEY";

struct HuntResult {
  std::vector<int> survivors;  // the pids of those that had not ended in time
  int problem = 0;             // why not all could be looked at, as `errno` has it: no /proc, no free descriptor
  bool spent_reserve = false;
};

// Kills every process that carries one of `keys`, but for the calling one, and looks again until there are no more:
// they may fork meanwhile.  Waits up to `patience_ms` for their end, and reaps those that are our children.  Allocates;
// needs no GIL, and no free descriptor where `fill_reserve` has been called.
//
// Nobody else is killed in their place: a pid is only a hint, the signal goes to a process descriptor whose environment
// was read after it was opened.  Linux only; elsewhere there are no worker processes.
HuntResult kill_process_tree(const std::vector<std::string>& keys, int patience_ms);

// Makes /proc tell `keys` as this process's: what forks from it without an exec then shows them too.  Where it was
// exec'd with other keys of the same length they are written over, before anything changes the variable; otherwise it
// takes a kernel with CONFIG_CHECKPOINT_RESTORE.  Returns whether it could.
bool show_keys(const std::string& keys);

// From now on those among our descendants who lose their parent become our children, as they otherwise become the first
// process's; they are ours to reap.  Whether the kernel lets us.
bool take_in_orphans();

}  // namespace remuda
