// Starts threads that run until the process ends, with all signals blocked: ours in the process of somebody else.
#pragma once

#include <thread>
#include <utility>

#include "os/blocked_signals.hpp"

namespace remuda {

// Starts a thread that nobody waits for. Every signal is left to the main thread, where Python handles them.
template <class Work>
void start_detached(Work work) {
  const BlockedSignals blocked;  // also where there can be no thread
  std::thread(std::move(work)).detach();
}

}  // namespace remuda
