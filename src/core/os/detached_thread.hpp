// Starts the core's own threads in the user's process. They run until the process ends, with all signals blocked.
#pragma once

#include <thread>
#include <utility>

#include "os/blocked_signals.hpp"

namespace remuda {

// Starts a thread that is never joined. All signals are left to the main thread, where Python handles them.
template <class Work>
void start_detached(Work work) {
  const BlockedSignals blocked;  // restored on return, even if no thread could start
  std::thread(std::move(work)).detach();
}

}  // namespace remuda
