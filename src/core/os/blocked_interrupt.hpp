// Keeps SIGINT from a thread for a while: it comes when that is over.
#pragma once

#include <signal.h>

namespace remuda {

class BlockedInterrupt {
 public:
  BlockedInterrupt() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  ~BlockedInterrupt() {
    if (!is_kept_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedInterrupt(const BlockedInterrupt&) = delete;
  BlockedInterrupt& operator=(const BlockedInterrupt&) = delete;

  // It stays blocked.
  void keep() { is_kept_ = true; }

 private:
  sigset_t before_;
  bool is_kept_ = false;
};

}  // namespace remuda
