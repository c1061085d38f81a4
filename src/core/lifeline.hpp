// A worker's lifeline to its owner: when the owner dies, the worker dies at once.
//
// A thread of its own waits on the owner's process descriptor.  It holds no GIL and calls no Python,
// so an env that is stuck in native code is no obstacle.  The whole process group is killed: the
// simulators that an env has spawned go with it, and before it those that have left the group.
#pragma once

#include <string>

namespace remuda {

// Takes over `pidfd`.  `key`: of the worker's family.  Linux only; elsewhere there are no worker processes.
void tie_life_to(int pidfd, std::string key);

}  // namespace remuda
