// A worker's lifeline to its owner: when the owner dies, the worker dies at once.
//
// A separate thread waits on the owner's process descriptor, then kills the worker and its process group. The thread
// holds no GIL and calls no Python, so it works even if an env is stuck in native code. The watcher (src/watcher) kills
// processes that have left the group, and workers that are stopped.
#pragma once

namespace remuda {

// Starts the thread of the lifeline. Takes ownership of `pidfd`, the owner's process descriptor. Linux only; elsewhere
// there are no worker processes.
void tie_life_to(int pidfd);

}  // namespace remuda
