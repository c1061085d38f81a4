// Starts the core's own threads, which run in the user's process until it ends, with all signals blocked.
#pragma once

#include <thread>
#include <utility>

#include "os/blocked_signals.hpp"

namespace remuda {

// Starts a thread that is never joined. It blocks all signals, so that the main thread receives them, where Python
// handles them.
template <class Work>
void start_detached(Work work) {
  // The new thread inherits the signal mask. The destructor restores this thread's mask, even if no thread could start.
  const BlockedSignals blocked;
  std::thread(std::move(work)).detach();
}

}  // namespace remuda
