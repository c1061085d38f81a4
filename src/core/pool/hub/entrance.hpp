// Lets one call into the hub at a time.
//
// Code of the caller's can run in the middle of a call: a signal handler, a finalizer that the garbage collector runs,
// an env that is stepped in this thread, another thread.  If that code calls the pool again, the call is refused and
// changes nothing.  A close is put off until the call has ended.
//
//   a call from outside    from the pool's public methods: refused while any other call is under way
//   a dealing              the pool's Python code decides what becomes of faults and answers
//   a call from within     allowed in the course of a dealing, too
#pragma once

#include <utility>

#include "python/numpy_api.hpp"

namespace remuda {

class Entrance {
 public:
  enum class Kind { kOutside, kDealing, kWithin };

  // One call.  Throws StateError if it is refused.
  class Stay {
   public:
    Stay(Entrance& entrance, Kind kind) : entrance_(entrance), kind_(kind) { entrance_.enter(kind); }
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

    // The call has succeeded.  If a close was put off, the pool is closed now, and this throws ClosedError.
    void end();

   private:
    Entrance& entrance_;
    Kind kind_;
    bool is_over_ = false;
  };

  // The end of a call calls back into the pool's Python code, which may enter again.
  class Pause {
   public:
    explicit Pause(Entrance& entrance) : entrance_(entrance) { entrance_.is_inside_ = false; }
    ~Pause() { entrance_.is_inside_ = true; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Entrance& entrance_;
  };

  // Returns false if no call is under way.  Else `close` is called when that has ended.  Another thread's is waited
  // for.
  bool put_off(nb::object close);
  // Whether a close was put off: whatever waits returns at once.
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
  unsigned long thread_ = 0;  // of the call that is under way
  nb::object close_;          // a close that was put off
};

}  // namespace remuda
