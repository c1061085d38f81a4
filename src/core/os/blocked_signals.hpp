// Blocks signals in the calling thread for the lifetime of the object. Signals that arrive meanwhile are delivered
// afterwards.
#pragma once

#include <signal.h>

#include <vector>

namespace remuda {

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

}  // namespace remuda
