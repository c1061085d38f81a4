// Blocks signals in the calling thread for the lifetime of the object. Signals that arrive meanwhile are delivered
// afterwards.
#pragma once

#include <signal.h>

namespace remuda {

class BlockedSignals {
 public:
  // Without arguments, blocks all signals; otherwise the given one.
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    block(all);
  }
  explicit BlockedSignals(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    block(one);
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

}  // namespace remuda
