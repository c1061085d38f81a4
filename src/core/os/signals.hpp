// Signals: those that are blocked for a moment, those that end whole jobs, and one that stops a worker.
#pragma once

#include <signal.h>

#include <vector>

#include "os/platform.hpp"

namespace remuda {

#if REMUDA_LINUX

// Blocks signals in the calling thread for the lifetime of the object. Signals that arrive meanwhile are delivered
// afterwards.
class BlockedSignals {
 public:
  // Without arguments, blocks all signals; otherwise those with the given numbers.
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    block(all);
  }
  explicit BlockedSignals(const std::vector<int>& numbers) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : numbers) sigaddset(&set, number);
    block(set);
  }
  ~BlockedSignals() {
    if (!is_kept_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Makes the destructor leave the signals blocked.
  void keep() { is_kept_ = true; }

 private:
  void block(const sigset_t& set) { pthread_sigmask(SIG_BLOCK, &set, &before_); }

  sigset_t before_;
  bool is_kept_ = false;
};

#endif

// Returns the numbers of the signals that a scheduler, or `kill` with a process group, may send to every process of a
// job. A program may handle such a signal, for example to save a checkpoint and to go on. Its workers must then survive
// the signal, too.
const std::vector<int>& job_signals();

// Makes this process ignore each of these signals if the process `owner` handles, ignores or blocks it when it comes.
// Otherwise the signal has the effect that it had before this call. It also has this effect if the owner or this
// process itself has sent it, and in forked children.
//
// Programs that this process executes do not inherit this: their signals have the default actions. Ignored signals
// would be inherited. A SIGHUP that is ignored already, as by nohup, stays ignored.
void follow_signals(int owner);

// Makes signal `number` stop this process as SIGSTOP does. A handler that is installed later can do its own work and
// then call this one. Throws std::system_error if the handler cannot be installed.
void stop_at(int number);

}  // namespace remuda
