// The calls into a hub, and the right to be inside it: the *turn*, which one thread has at a time.
//
// A thread that calls the hub has a call here until the call returns or raises. It is inside while it has the turn. It
// gives up the turn when its call ends, and while it sleeps or runs code of the program (`Absence`).
//
//   enter -> kEntered       the thread has the turn
//         -> kMustWait      the call has begun, and `await` must follow until the thread has the turn
//         -> kInMiddle      refused: code that has interrupted a call of this thread calls the hub
//         -> kOtherThread   refused: another thread is in a call for the same part, or for the whole pool
//         -> kClosing       refused: another thread closes the pool
//
// Decisions, and calls of log handlers in a thread of their own, refuse no other call and are not refused: they wait
// for the turn. A close in the middle of a call is deferred: the last call that ends runs it.
//
// No function waits for longer than the limit that its caller gives, so the caller can look for signals. A thread that
// may not have the turn again after its sleep gives up its call (`Absence`), and leaves without the turn.
//
// The class uses no Python. Any thread may call any function. Only the thread that has the turn may call `leave` and
// the constructor of `Absence`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "ipc/clock.hpp"

namespace remuda {

class Turn {
 public:
  using Thread = unsigned long;  // never 0
  using PartNumber = std::optional<std::uint32_t>;
  using Close = std::function<void()>;

  // A call is kOutside if it is refused in the middle of any other call; kWithin, if a decision may make it; and
  // kSeries, if it makes several of the other calls. kDecision: the supervisor decides on faults and answers.
  enum class Kind { kOutside, kDecision, kWithin, kSeries };
  enum class Entry { kEntered, kMustWait, kInMiddle, kOtherThread, kClosing };
  enum class Closing { kNow, kDeferred, kRunning };
  struct Ending {
    bool is_closing = false;  // whether a close was deferred
    Close close = {};         // the deferred close, if it must run now
  };

  bool is_holder(Thread thread) const { return holder_.load(std::memory_order_relaxed) == thread; }

  // -- calls ---------------------------------------------------------------------------------------------------

  // Begins a call of a thread. `part`: the part that the call is for; nullopt if it is for the whole pool.
  // `is_outermost`: receives whether the thread has no other call inside.
  Entry enter(Kind kind, Thread thread, PartNumber part, bool& is_outermost);
  // Waits for the turn, at most for `limit`. Returns whether the thread has it.
  bool await(Kind kind, Thread thread, Nanoseconds limit);
  // Ends a call of a thread that waits for the turn in vain.
  Ending withdraw(Thread thread);
  // Ends a call of a thread. If the thread has lost the turn (`Absence`), only the outermost call does anything.
  Ending leave(Kind kind, Thread thread, bool is_outermost);
  // Returns whether a thread other than this one is in a call for `part`, or in one for the whole pool. Without `part`:
  // whether it is in any call.
  bool any_call_besides(Thread thread, PartNumber part) const;
  // Makes the calls of this thread wait for the turn, and refuse no other call, until the thread is 0 again.
  void set_log_thread(Thread thread) { log_thread_.store(thread, std::memory_order_relaxed); }

  // -- while a call sleeps, or runs code of the program --------------------------------------------------------

  // Gives the turn to other threads. If `lets_in`, the thread itself may make calls meanwhile.
  class Absence {
   public:
    explicit Absence(Turn& turn, Thread thread, bool lets_in = false);
    // If the thread does not get the turn again at once, its call goes on, and ends, without it.
    ~Absence();
    Absence(const Absence&) = delete;
    Absence& operator=(const Absence&) = delete;

    // Waits for the turn, at most for `limit`. Returns whether the thread has it.
    bool end(Nanoseconds limit);

   private:
    void come_back();

    Turn& turn_;
    const Thread thread_;
    const bool lets_in_, is_inside_, is_deciding_;
    bool is_over_ = false;
  };

  // Lets other calls of this thread enter while it exists, without giving up the turn.
  class Pause {
   public:
    explicit Pause(Turn& turn) : turn_(turn) { turn_.is_inside_ = false; }
    ~Pause() { turn_.is_inside_ = true; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Turn& turn_;
  };

  // The number of calls of `announce`.
  std::uint64_t news() const { return news_.load(); }
  // Wakes the threads in `await_news`.
  void announce();
  // Sleeps until the number of calls of `announce` is not `news`, but at most for `limit`.
  void await_news(std::uint64_t news, Nanoseconds limit);

  // -- closing -------------------------------------------------------------------------------------------------

  // Begins to close. kNow: no call is running, so this thread must close, and then call `note_closed`. kDeferred: the
  // last of the current calls closes; an earlier close that was deferred is kept. kRunning: a thread is closing
  // already. `is_in_call`: receives whether this thread is in one of the calls.
  Closing begin_close(Close close, Thread thread, bool& is_in_call);
  // Returns whether a close was deferred. If so, every wait must return at once.
  bool is_closing() const { return is_closing_.load(std::memory_order_relaxed); }
  // Notes that a close is over, which `begin_close` or an `Ending` has made this thread run.
  void note_closed();
  // Waits for the end of a deferred close, at most for `limit`. Returns whether it has ended.
  bool await_close(Nanoseconds limit);

 private:
  struct Call {
    Thread thread;
    PartNumber part;
    bool yields;           // whether it refuses no other call
    bool lets_in = false;  // whether the thread may make further calls
  };

  // A thread takes the turn by one atomic operation, so that a sleep costs no lock. A thread that waits for the turn
  // first counts itself, and then looks; one that gives it up does so first, and then looks for waiters. Both are
  // sequentially consistent, so one of the two sees the other.
  bool take(Thread thread) {
    Thread nobody = 0;
    return holder_.compare_exchange_strong(nobody, thread);
  }
  void note(Kind kind) {
    if (kind != Kind::kSeries) (kind == Kind::kDecision ? is_deciding_ : is_inside_) = true;
  }
  Call* call_of(Thread thread);  // the newest call of a thread, or null
  void let_in(Thread thread, bool lets_in);
  Ending ending_of(Thread thread, int own_calls);
  void remove_call(Thread thread);
  bool any_besides(Thread thread, PartNumber part) const;
  // Waits until `is_met()`, but at most for `limit`, and returns `is_met()`.
  template <class Condition>
  bool wait_for(std::unique_lock<std::mutex>& lock, Nanoseconds limit, Condition is_met) {
    waiters_.fetch_add(1);
    const bool met = changed_.wait_for(lock, limit, is_met);
    waiters_.fetch_sub(1);
    return met;
  }

  mutable std::mutex mutex_;  // protects `calls_`, `close_` and `closer_`
  std::condition_variable changed_;
  std::atomic<std::uint32_t> waiters_{0};  // the threads that wait for `changed_`
  std::atomic<Thread> holder_{0};          // the thread that has the turn; 0 if none has
  std::atomic<Thread> log_thread_{0};
  std::vector<Call> calls_;  // the outermost calls of all threads, the newest last
  std::atomic<std::uint64_t> news_{0};
  Close close_;
  std::atomic<bool> is_closing_{false};
  Thread closer_ = 0;                             // the thread that closes; 0: none
  bool is_inside_ = false, is_deciding_ = false;  // the call of the thread that has the turn; only it uses these
};

}  // namespace remuda
