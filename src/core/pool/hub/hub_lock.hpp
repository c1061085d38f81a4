// Lets one call into the hub at a time.
//
// User code can run in the middle of a call: a signal handler, a finalizer that the garbage collector runs, or an env
// that is stepped in this thread. If this code calls the pool, the call is refused and changes nothing. A close is
// deferred until the current call has ended. There are four kinds of calls:
//
//   kOutside   a call of the pool's public methods; it is refused while any other call is running
//   kHandling  a call in which the pool's Python code decides on faults and answers
//   kWithin    a call that is allowed during a kHandling call, too
//   kSeries    a public method that makes several of the calls above
//
// Only the thread that has the *turn* may be inside. A thread gives up the turn when its call ends, and while it sleeps
// (`Absence`). Threads may make calls for different parts of the pool: each waits for the turn. Any other call is
// refused while another thread is in a call: one for the same part, or one for the whole pool. Calls of the
// supervisor's thread refuse no other call, and are not refused: they wait for the turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "ipc/clock.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

class HubLock {
  // The calls of the thread that has the turn.
  struct Inside {
    bool is_inside = false, is_handling = false;
    std::uint32_t depth = 0;  // the number of calls, one within the other
  };

 public:
  enum class Kind { kOutside, kHandling, kWithin, kSeries };
  using PartNumber = std::optional<std::uint32_t>;

  // One call into the hub. `part`: the part that it is for; nullopt if it is for the whole pool. The constructor throws
  // StateError if the call is refused.
  class Guard {
   public:
    Guard(HubLock& hub_lock, Kind kind, PartNumber part = {}) : lock_(hub_lock), kind_(kind) {
      lock_.enter(kind, part);
    }
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    // Ends a call that has succeeded. If a close was deferred, throws ClosedError, and before that closes the pool,
    // unless another thread is still in a call.
    void end();

   private:
    HubLock& lock_;
    Kind kind_;
    bool is_over_ = false;
  };

  // Lets other calls of this thread enter while it exists. The hub uses it at the end of a call, where it calls Python
  // code of the pool that may call the hub.
  class Pause {
   public:
    explicit Pause(HubLock& hub_lock) : lock_(hub_lock) { lock_.inside_.is_inside = false; }
    ~Pause() { lock_.inside_.is_inside = true; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    HubLock& lock_;
  };

  // Gives the turn to other threads while it exists. The destructor waits for the turn. The thread must not hold the
  // GIL.
  class Absence {
   public:
    explicit Absence(HubLock& hub_lock);
    ~Absence();
    Absence(const Absence&) = delete;
    Absence& operator=(const Absence&) = delete;

    // Sleeps until another thread calls `announce`, but at most for `limit`.
    void await_news(Nanoseconds limit);

   private:
    HubLock& lock_;
    const unsigned long thread_;
    const std::uint64_t news_;
    const Inside inside_;
  };

  // Makes this thread the supervisor's. Its calls are not refused while other threads are in calls, because a log
  // handler that it runs may call the pool.
  void become_supervisor() { supervisor_.store(PyThread_get_thread_ident(), std::memory_order_relaxed); }
  bool is_in_turn() const { return turn() == PyThread_get_thread_ident(); }
  bool is_supervisor(unsigned long thread) const { return supervisor_.load(std::memory_order_relaxed) == thread; }

  // Throws StateError if another thread is in a call for `part`, or in one for the whole pool. Without `part`: if
  // another thread is in any call.
  void require_no_other_thread(PartNumber part = {});
  // Wakes the threads that wait for news.
  void announce();

  // Defers `close` until all current calls have ended. If this thread is in none of them, and `waits` is true, waits
  // for their end. Returns false if no call is running.
  bool put_off(nb::object close, bool waits);
  // Returns whether a close was deferred. If so, every wait must return at once.
  bool is_closing() const { return is_closing_.load(std::memory_order_relaxed); }

  nb::object& deferred_close() { return close_; }

 private:
  struct Call {
    unsigned long thread;
    PartNumber part;
    bool is_supervisors;  // whether it decides on faults, or is made by a log handler in the supervisor's thread
  };
  struct Ending {
    bool is_closing = false;  // whether the call must raise ClosedError
    nb::object close;         // the deferred close, if it must run now; else null
  };

  // A thread may compare the turn with itself at any time. It takes the turn by one atomic operation, so that a sleep
  // costs no lock. A thread that waits for the turn first counts itself, and then looks; one that gives it up does so
  // first, and then looks for waiters. Both are sequentially consistent, so one of the two sees the other.
  unsigned long turn() const { return turn_.load(std::memory_order_relaxed); }
  bool take_turn(unsigned long thread) {
    unsigned long nobody = 0;
    return turn_.compare_exchange_strong(nobody, thread);
  }
  bool give_up_turn() {
    turn_.store(0);
    return waiters_.load() != 0;
  }

  bool is_taken() const { return inside_.is_inside || inside_.is_handling; }
  std::unique_lock<std::mutex> lock_unless_alone(std::size_t own);
  void enter(Kind kind, PartNumber part);
  Ending leave(Kind kind);
  void run(const nb::object& close);
  void begin_call(unsigned long thread, PartNumber part, bool is_supervisors);
  void remove_call(unsigned long thread);
  bool is_in_call(unsigned long thread) const;
  bool any_call_besides(unsigned long thread, PartNumber part = {}) const;
  // Waits until `is_met()`, but at most for `limit`, and returns `is_met()`.
  template <class Condition>
  bool wait_for(std::unique_lock<std::mutex>& lock, Nanoseconds limit, Condition is_met) {
    ++waiters_;
    const bool met = changed_.wait_for(lock, limit, is_met);
    --waiters_;
    return met;
  }

  std::mutex mutex_;  // protects the members below; no thread calls Python while it holds it
  std::condition_variable changed_;
  std::atomic<std::uint32_t> waiters_{0};  // the threads that wait for `changed_`
  std::atomic<unsigned long> turn_{0};     // the thread that has the turn; 0 if none has
  std::atomic<unsigned long> supervisor_{0};
  std::vector<Call> calls_;  // the outermost call of each thread
  std::uint64_t news_ = 0;   // the number of calls of `announce`
  nb::object close_;         // The deferred close; null if there is none.
  std::atomic<bool> is_closing_{false};
  bool is_running_close_ = false;
  Inside inside_;  // only the thread that has the turn uses it
};

}  // namespace remuda
