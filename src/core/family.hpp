// A worker's family: whatever was started from it, wherever that has gone.
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

// Kills every process that carries one of `keys`, but for the calling one, and looks again until there are no more:
// they may fork meanwhile.  Returns the pids of those that have not ended after `patience_ms` more.  Allocates; needs
// no GIL.
//
// Nobody else is killed in their place: a pid is only a hint, the signal goes to a process descriptor whose environment
// was read after it was opened.  Linux only; elsewhere there are no worker processes.
std::vector<int> kill_family(const std::vector<std::string>& keys, int patience_ms);

// Makes /proc tell `keys` as this process's, where it was exec'd with other keys of the same length: what forks from it
// without an exec then shows them too.  Before anything changes the variable.  Returns whether it could.
bool show_family(const std::string& keys);

}  // namespace remuda
