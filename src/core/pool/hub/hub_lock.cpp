#include "pool/hub/hub_lock.hpp"

#include <algorithm>
#include <chrono>

namespace remuda {

namespace {

constexpr Nanoseconds kBetweenSignals = std::chrono::milliseconds(10);  // between two checks for signals

[[noreturn]] void raise(const char* kind, const char* text) {
  const nb::object type = nb::module_::import_("remuda.errors").attr(kind);
  PyErr_SetString(type.ptr(), text);
  throw nb::python_error();
}

[[noreturn]] void refuse_other_thread() {
  raise("StateError",
        "expected calls from one thread at a time, got one while another thread is in a call of this pool; give each "
        "thread a part of the pool (`Pool.split`) or a pool of its own, or take a lock around the calls. Nothing was "
        "sent");
}

[[noreturn]] void refuse_interruption() {
  raise("StateError",
        "expected no call of the pool in the middle of another one, got one from code that interrupted it (a signal "
        "handler, a finalizer, or an env in this thread); call the pool after that call has returned. Nothing was "
        "sent");
}

}  // namespace

// -- calls -------------------------------------------------------------------------------------------------

void HubLock::enter(Kind kind, PartNumber part) {
  const unsigned long thread = PyThread_get_thread_ident();
  if (turn() != thread)
    begin_call(thread, part, kind == Kind::kHandling || is_supervisor(thread));
  else if (inside_.is_inside || (inside_.is_handling && kind != Kind::kWithin))
    refuse_interruption();
  else if (part)
    require_no_other_thread(part);
  ++inside_.depth;
  if (kind != Kind::kSeries) (kind == Kind::kHandling ? inside_.is_handling : inside_.is_inside) = true;
}

HubLock::Ending HubLock::leave(Kind kind) {
  if (kind != Kind::kSeries) (kind == Kind::kHandling ? inside_.is_handling : inside_.is_inside) = false;
  const bool is_outermost = --inside_.depth == 0;
  if (!is_outermost && (is_taken() || !is_closing())) return {};
  const unsigned long thread = turn();
  const auto lock = lock_unless_alone(1);
  Ending ending{is_closing(), {}};
  if (is_outermost) remove_call(thread);
  if (!ending.is_closing || any_call_besides(thread)) return ending;
  ending.close = std::exchange(close_, nb::object());
  is_closing_.store(false, std::memory_order_relaxed);
  is_running_close_ = ending.close.is_valid();
  return ending;
}

// Locks the members, unless the GIL alone protects them: threads without the GIL wait in here only within calls, or for
// a close. `own`: the number of calls of this thread in `calls_`. The caller holds the GIL.
std::unique_lock<std::mutex> HubLock::lock_unless_alone([[maybe_unused]] std::size_t own) {
#ifndef Py_GIL_DISABLED
  if (calls_.size() == own && !is_closing()) return {};
#endif
  return std::unique_lock(mutex_);
}

// Begins an outermost call of this thread: waits until the thread gets the turn.
void HubLock::begin_call(unsigned long thread, PartNumber part, bool is_supervisors) {
  bool is_waiting = false, is_refused = false;
  {
    const auto lock = lock_unless_alone(0);
    if (!calls_.empty()) {
      is_waiting = is_in_call(thread);  // this thread waits for its turn, and a signal handler calls the pool
      is_refused = !is_supervisors && any_call_besides(thread, part);
    }
    if (!is_waiting && !is_refused) {
      calls_.push_back({thread, part, is_supervisors});
      if (take_turn(thread)) return;
    }
  }
  if (is_waiting) refuse_interruption();
  if (is_refused) refuse_other_thread();
  for (;;) {
    {
      nb::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      if (wait_for(lock, kBetweenSignals, [=, this] { return take_turn(thread); })) return;
    }
    if (PyErr_CheckSignals() == 0) continue;
    {
      const std::lock_guard lock(mutex_);
      remove_call(thread);
    }
    nb::raise_python_error();
  }
}

// Removes the outermost call of this thread, and gives up its turn. The caller has the lock.
void HubLock::remove_call(unsigned long thread) {
  if (calls_.size() == 1)  // it is that one
    calls_.clear();
  else
    std::erase_if(calls_, [=](const Call& c) { return c.thread == thread; });
  if (turn() == thread) give_up_turn();
  if (waiters_.load() != 0) changed_.notify_all();
}

bool HubLock::is_in_call(unsigned long thread) const {
  return std::any_of(calls_.begin(), calls_.end(), [=](const Call& c) { return c.thread == thread; });
}

// Returns whether other threads make calls that a call for `part` must not run beside.
bool HubLock::any_call_besides(unsigned long thread, PartNumber part) const {
  return std::any_of(calls_.begin(), calls_.end(), [=](const Call& c) {
    return c.thread != thread && !c.is_supervisors && (!part || !c.part || c.part == part);
  });
}

void HubLock::Guard::end() {
  is_over_ = true;
  const Ending ending = lock_.leave(kind_);
  if (ending.close.is_valid()) lock_.run(ending.close);
  if (ending.is_closing && kind_ != Kind::kHandling)
    raise("ClosedError", "the pool is closed, by a handler or a finalizer in the course of this call; make a new one");
}

// If the call has thrown, its caller receives that error. If the deferred close throws, too, its error is only
// reported.
HubLock::Guard::~Guard() {
  if (is_over_) return;
  const Ending ending = lock_.leave(kind_);
  if (!ending.close.is_valid()) return;
  try {
    lock_.run(ending.close);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("closing a pool after a call that has raised");
  }
}

// Runs the deferred close, then wakes the threads that wait for its end.
void HubLock::run(const nb::object& close) {
  struct AtEnd {
    ~AtEnd() {
      const std::lock_guard lock(hub_lock.mutex_);
      hub_lock.is_running_close_ = false;
      hub_lock.changed_.notify_all();
    }
    HubLock& hub_lock;
  };
  const AtEnd at_end{*this};
  close();
}

// -- other threads -----------------------------------------------------------------------------------------

HubLock::Absence::Absence(HubLock& hub_lock)
    : lock_(hub_lock),
      thread_(hub_lock.turn()),
      news_(hub_lock.news_),
      inside_(std::exchange(hub_lock.inside_, Inside())) {
  if (!lock_.give_up_turn()) return;
  const std::lock_guard lock(lock_.mutex_);
  lock_.changed_.notify_all();
}

HubLock::Absence::~Absence() {
  if (!lock_.take_turn(thread_)) {
    std::unique_lock lock(lock_.mutex_);
    while (!lock_.wait_for(lock, kBetweenSignals, [this] { return lock_.take_turn(thread_); })) {
    }
  }
  lock_.inside_ = inside_;
}

void HubLock::Absence::await_news(Nanoseconds limit) {
  std::unique_lock lock(lock_.mutex_);
  lock_.wait_for(lock, limit, [this] { return lock_.news_ != news_; });
}

void HubLock::require_no_other_thread(PartNumber part) {
  const unsigned long thread = PyThread_get_thread_ident();
  bool is_refused;
  {
    const auto lock = lock_unless_alone(1);
    is_refused = any_call_besides(thread, part);
  }
  if (is_refused) refuse_other_thread();
}

void HubLock::announce() {
  const std::lock_guard lock(mutex_);
  ++news_;
  if (waiters_.load() != 0) changed_.notify_all();
}

bool HubLock::put_off(nb::object close, bool waits) {
  const unsigned long thread = PyThread_get_thread_ident();
  {
    const std::lock_guard lock(mutex_);
    const bool has_turn = turn() == thread;
    const bool is_free = std::all_of(calls_.begin(), calls_.end(), [](const Call& c) { return c.is_supervisors; });
    if (has_turn ? !is_taken() && !any_call_besides(thread) : is_free) return false;
    if (!close_.is_valid()) close_ = std::move(close);
    is_closing_.store(true, std::memory_order_relaxed);
    if (!waits || is_in_call(thread)) return true;
  }
  for (bool is_over = false; !is_over;) {
    {
      nb::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      is_over = wait_for(lock, kBetweenSignals, [this] { return !close_.is_valid() && !is_running_close_; });
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
  return true;
}

}  // namespace remuda
