#include "pool/hub/turn.hpp"

#include <algorithm>
#include <utility>

namespace remuda {

// -- calls -------------------------------------------------------------------------------------------------

Turn::Entry Turn::enter(Kind kind, Thread thread, PartNumber part, bool& is_outermost) {
  is_outermost = !is_holder(thread);
  if (!is_outermost) {
    if (is_inside_ || (is_deciding_ && kind != Kind::kWithin)) return Entry::kInMiddle;
    if (part && any_call_besides(thread, part)) return Entry::kOtherThread;
    note(kind);
    return Entry::kEntered;
  }
  const std::lock_guard lock(mutex_);
  if (!calls_.empty()) {
    const Call* const own = call_of(thread);
    if (own != nullptr && !own->lets_in) return Entry::kInMiddle;  // a signal handler in a thread that sleeps
  }
  if (closer_ != 0 && closer_ != thread && kind != Kind::kDecision) return Entry::kClosing;
  const bool yields = kind == Kind::kDecision || thread == log_thread_.load(std::memory_order_relaxed);
  if (!yields && any_besides(thread, part)) return Entry::kOtherThread;
  calls_.push_back({thread, part, yields});
  if (!take(thread)) return Entry::kMustWait;
  note(kind);
  return Entry::kEntered;
}

bool Turn::await(Kind kind, Thread thread, Nanoseconds limit) {
  std::unique_lock lock(mutex_);
  if (!wait_for(lock, limit, [=, this] { return take(thread); })) return false;
  note(kind);
  return true;
}

Turn::Ending Turn::withdraw(Thread thread) {
  const std::lock_guard lock(mutex_);
  remove_call(thread);
  return ending_of(thread, 0);
}

Turn::Ending Turn::leave(Kind kind, Thread thread, bool is_outermost) {
  const bool is_here = is_holder(thread);
  if (is_here && kind != Kind::kSeries) (kind == Kind::kDecision ? is_deciding_ : is_inside_) = false;
  if (!is_outermost && (!is_here || is_inside_ || is_deciding_ || !is_closing())) return {};
  const std::lock_guard lock(mutex_);
  if (is_outermost) remove_call(thread);
  return ending_of(thread, is_outermost ? 0 : 1);
}

// Returns the deferred close if this thread is in `own_calls` calls at most, and no other thread is in any.
Turn::Ending Turn::ending_of(Thread thread, int own_calls) {
  Ending ending{is_closing()};
  const auto own = std::count_if(calls_.begin(), calls_.end(), [=](const Call& c) { return c.thread == thread; });
  if (!ending.is_closing || own > own_calls || any_besides(thread, {})) return ending;
  ending.close = std::exchange(close_, {});
  is_closing_.store(false, std::memory_order_relaxed);
  closer_ = thread;
  return ending;
}

bool Turn::any_call_besides(Thread thread, PartNumber part) const {
  const std::lock_guard lock(mutex_);
  return any_besides(thread, part);
}

// The caller of these functions has the lock, as that of `ending_of`.

Turn::Call* Turn::call_of(Thread thread) {
  const auto found = std::find_if(calls_.rbegin(), calls_.rend(), [=](const Call& c) { return c.thread == thread; });
  return found == calls_.rend() ? nullptr : &*found;
}

void Turn::remove_call(Thread thread) {
  if (Call* const own = call_of(thread)) calls_.erase(calls_.begin() + (own - calls_.data()));
  if (is_holder(thread)) holder_.store(0);
  if (waiters_.load() != 0) changed_.notify_all();
}

bool Turn::any_besides(Thread thread, PartNumber part) const {
  return std::any_of(calls_.begin(), calls_.end(), [=](const Call& c) {
    return c.thread != thread && !c.yields && (!part || !c.part || c.part == part);
  });
}

// -- while a call sleeps -----------------------------------------------------------------------------------

void Turn::let_in(Thread thread, bool lets_in) {
  const std::lock_guard lock(mutex_);
  if (Call* const own = call_of(thread)) own->lets_in = lets_in;
}

Turn::Absence::Absence(Turn& turn, Thread thread, bool lets_in)
    : turn_(turn),
      thread_(thread),
      lets_in_(lets_in),
      is_inside_(std::exchange(turn.is_inside_, false)),
      is_deciding_(std::exchange(turn.is_deciding_, false)) {
  if (lets_in) turn_.let_in(thread, true);
  turn_.holder_.store(0);
  if (turn_.waiters_.load() == 0) return;
  const std::lock_guard lock(turn_.mutex_);
  turn_.changed_.notify_all();
}

bool Turn::Absence::end(Nanoseconds limit) {
  if (is_over_) return true;
  if (!turn_.take(thread_)) {
    std::unique_lock lock(turn_.mutex_);
    if (!turn_.wait_for(lock, limit, [this] { return turn_.take(thread_); })) return false;
  }
  come_back();
  return true;
}

void Turn::Absence::come_back() {
  is_over_ = true;
  if (lets_in_) turn_.let_in(thread_, false);
  turn_.is_inside_ = is_inside_;
  turn_.is_deciding_ = is_deciding_;
}

Turn::Absence::~Absence() {
  if (is_over_) return;
  if (turn_.take(thread_))
    come_back();
  else
    turn_.let_in(thread_, true);  // code that runs until the call ends may use the pool
}

void Turn::await_news(std::uint64_t news, Nanoseconds limit) {
  std::unique_lock lock(mutex_);
  wait_for(lock, limit, [=, this] { return news_.load() != news; });
}

void Turn::announce() {
  const std::lock_guard lock(mutex_);
  ++news_;
  if (waiters_.load() != 0) changed_.notify_all();
}

// -- closing -----------------------------------------------------------------------------------------------

Turn::Closing Turn::begin_close(Close close, Thread thread, bool& is_in_call) {
  const std::lock_guard lock(mutex_);
  is_in_call = call_of(thread) != nullptr;
  if (closer_ != 0) return Closing::kRunning;
  const auto yields = [](const Call& c) { return c.yields; };
  if (is_holder(thread) ? !is_inside_ && !is_deciding_ && !any_besides(thread, {})
                        : std::all_of(calls_.begin(), calls_.end(), yields)) {
    closer_ = thread;
    return Closing::kNow;
  }
  if (!close_) close_ = std::move(close);
  is_closing_.store(true, std::memory_order_relaxed);
  return Closing::kDeferred;
}

void Turn::note_closed() {
  const std::lock_guard lock(mutex_);
  closer_ = 0;
  changed_.notify_all();
}

bool Turn::await_close(Nanoseconds limit) {
  std::unique_lock lock(mutex_);
  return wait_for(lock, limit, [this] { return !close_ && closer_ == 0; });
}

}  // namespace remuda
