// Lets one call into the hub at a time.
//
// User code can run in the middle of a call: a signal handler, a finalizer that the garbage collector runs, an env that
// is stepped in this thread, or another thread. If this code calls the pool, the call is refused and changes nothing. A
// close is deferred until the current call has ended.
//
// There are three kinds of calls:
//
//   kOutside   a call of the pool's public methods; it is refused while any other call is running
//   kDealing   a call in which the pool's Python code decides on faults and answers
//   kWithin    a call that is allowed during a kDealing call, too
#pragma once

#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

class Entrance {
 public:
  enum class Kind { kOutside, kDealing, kWithin };

  // One call into the hub. The constructor throws StateError if the call is refused.
  class Stay {
   public:
    Stay(Entrance& entrance, Kind kind) : entrance_(entrance), kind_(kind) { entrance_.enter(kind); }
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

    // Ends a call that has succeeded. If a close was deferred, closes the pool and throws ClosedError.
    void end();

   private:
    Entrance& entrance_;
    Kind kind_;
    bool is_over_ = false;
  };

  // Lets other calls enter while it exists. The hub uses it at the end of a call, where it calls Python code of the
  // pool that may call the hub.
  class Pause {
   public:
    explicit Pause(Entrance& entrance) : entrance_(entrance) { entrance_.is_inside_ = false; }
    ~Pause() { entrance_.is_inside_ = true; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Entrance& entrance_;
  };

  // Defers `close` until the current call has ended. If another thread makes that call, waits for its end. Returns
  // false if no call is running.
  bool put_off(nb::object close);
  // Returns whether a close was deferred. If so, every wait must return at once.
  bool is_closing() const { return close_.is_valid(); }

  int visit(visitproc visit, void* arg) const {
    Py_VISIT(close_.ptr());
    return 0;
  }
  void clear() { close_.reset(); }

 private:
  bool is_taken() const { return is_inside_ || is_dealing_; }
  void enter(Kind kind);
  nb::object leave(Kind kind);

  bool is_inside_ = false, is_dealing_ = false;
  unsigned long thread_ = 0;  // The thread of the call that is running.
  nb::object close_;          // The deferred close; null if there is none.
};

}  // namespace remuda
