#include "pool/hub/hub_lock.hpp"

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

// Waits until `is_over()`, which waits for a moment without the GIL. Throws what a signal handler raises.
template <class IsOver>
void wait_until(IsOver is_over) {
  for (;;) {
    {
      const nb::gil_scoped_release release;
      if (is_over()) return;
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

}  // namespace

bool HubLock::enter(Kind kind, PartNumber part) {
  const Turn::Thread thread = PyThread_get_thread_ident();
  bool is_outermost;
  switch (turn_.enter(kind, thread, part, is_outermost)) {
    case Turn::Entry::kEntered:
      break;
    case Turn::Entry::kMustWait:
      try {
        wait_until([=, this] { return turn_.await(kind, thread, kBetweenSignals); });
      } catch (...) {
        run_after_error(turn_.withdraw(thread));
        throw;
      }
      break;
    case Turn::Entry::kInMiddle:
      refuse_interruption();
    case Turn::Entry::kOtherThread:
      refuse_other_thread();
    case Turn::Entry::kClosing:
      raise("ClosedError", "the pool is being closed by another thread; make a new one");
  }
  return is_outermost;
}

void HubLock::Guard::end() {
  is_over_ = true;
  const Turn::Ending ending = leave();
  if (ending.close) lock_.run(ending.close);
  if (ending.is_closing && kind_ != Kind::kDecision)
    raise("ClosedError", "the pool is closed, by a handler or a finalizer in the course of this call; make a new one");
}

HubLock::Guard::~Guard() {
  if (!is_over_) lock_.run_after_error(leave());
}

// The caller of a call that has thrown receives that error. If the deferred close throws, too, its error is only
// reported.
void HubLock::run_after_error(const Turn::Ending& ending) {
  if (!ending.close) return;
  try {
    run(ending.close);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("closing a pool after a call that has raised");
  }
}

// Runs a close, then wakes the threads that wait for its end.
void HubLock::run(const Turn::Close& close) {
  struct AtEnd {
    ~AtEnd() { turn.note_closed(); }
    Turn& turn;
  };
  const AtEnd at_end{turn_};
  close();
}

void HubLock::return_from(Absence& absence) {
  wait_until([&] { return absence.end(kBetweenSignals); });
}

void HubLock::require_no_other_thread() const {
  if (turn_.any_call_besides(PyThread_get_thread_ident(), {})) refuse_other_thread();
}

void HubLock::close(nb::object close) {
  bool is_in_call;
  const Turn::Close run_it = [close] { close(); };
  switch (turn_.begin_close(run_it, PyThread_get_thread_ident(), is_in_call)) {
    case Turn::Closing::kNow:
      return run(run_it);
    case Turn::Closing::kDeferred:
      if (!is_in_call) wait_until([this] { return turn_.await_close(kBetweenSignals); });
      return;
    case Turn::Closing::kRunning:
      return;
  }
}

}  // namespace remuda
