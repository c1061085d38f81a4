// Signals that a scheduler, or `kill` with a process group, may send to every process of a job.
//
// A program may handle such a signal, for example to save a checkpoint and to go on. Its workers must then survive the
// signal, too.
#pragma once

#include <vector>

namespace remuda {

// Returns the numbers of these signals.
const std::vector<int>& job_signals();

// Makes this process ignore each of these signals if the process `owner` handles, ignores or blocks it when it comes.
// Otherwise the signal has the effect that it had before this call. It also has this effect if the owner or this
// process itself has sent it, and in forked children.
//
// Programs that this process executes do not inherit this: their signals have the default actions. Ignored signals
// would be inherited. A SIGHUP that is ignored already, as by nohup, stays ignored.
void follow_signals(int owner);

}  // namespace remuda
