// Lets one call into the hub at a time: the shell of `Turn` for threads that run Python.
//
// User code can run in the middle of a call: a signal handler, a finalizer that the garbage collector runs, or an env
// that is stepped in this thread. If this code calls the pool, the call is refused and changes nothing. A close is
// deferred until the current call has ended. The callers of this class hold the GIL, and each wait releases it.
#pragma once

#include "pool/hub/turn.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class HubLock {
 public:
  using Kind = Turn::Kind;
  using PartNumber = Turn::PartNumber;

  // One call into the hub. `part`: the part that it is for; nullopt if it is for the whole pool. The constructor throws
  // StateError if the call is refused.
  class Guard {
   public:
    Guard(HubLock& hub_lock, Kind kind, PartNumber part = {})
        : lock_(hub_lock), kind_(kind), is_outermost_(hub_lock.enter(kind, part)) {}
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    // Ends a call that has succeeded. If a close was deferred, throws ClosedError, and before that closes the pool,
    // unless another thread is still in a call.
    void end();

   private:
    Turn::Ending leave() { return lock_.turn_.leave(kind_, PyThread_get_thread_ident(), is_outermost_); }

    HubLock& lock_;
    const Kind kind_;
    const bool is_outermost_;
    bool is_over_ = false;
  };

  // Gives the turn to other threads while it exists. `return_from` must follow, and throws what a signal handler raises
  // before this thread has the turn again.
  class Absence : public Turn::Absence {
   public:
    explicit Absence(HubLock& hub_lock, bool lets_in = false)
        : Turn::Absence(hub_lock.turn_, PyThread_get_thread_ident(), lets_in) {}
  };
  static void return_from(Absence& absence);

  // Calls a function that runs code of the program. Meanwhile other threads, and this code, may call the hub.
  template <class Act>
  void run_outside(Act act) {
    Absence absence(*this, true);
    act();
    return_from(absence);
  }

  // Throws StateError if another thread is in a call.
  void require_no_other_thread() const;
  // Calls `close` once all current calls have ended. If this thread is in one of them, or another thread closes
  // already, returns at once.
  void close(nb::object close);

  Turn& turn() { return turn_; }
  bool is_mine() const { return turn_.is_holder(PyThread_get_thread_ident()); }

 private:
  bool enter(Kind kind, PartNumber part);
  void run(const Turn::Close& close);
  void run_after_error(const Turn::Ending& ending);

  Turn turn_;
};

}  // namespace remuda
