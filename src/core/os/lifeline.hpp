// A worker's lifeline to its owner: when the owner dies, the worker dies at once.
//
// A thread of its own waits on the owner's process descriptor.  It holds no GIL and calls no Python, so an env that is
// stuck in native code is no obstacle.  The worker's process group is killed with it.  What has left the group, and
// workers that are stopped, are the watcher's business (src/watcher).
#pragma once

namespace remuda {

// Takes over `pidfd`.  Linux only; elsewhere there are no worker processes.
void tie_life_to(int pidfd);

}  // namespace remuda
