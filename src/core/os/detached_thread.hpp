// Starts threads that run until the process ends, with all signals blocked: ours in the process of somebody else.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace remuda {

// Starts a thread that nobody waits for. Every signal is left to the main thread, where Python handles them.
template <class Work>
void start_detached(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(work)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace remuda
