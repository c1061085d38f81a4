#include "pool/hub/entrance.hpp"

#include <chrono>
#include <thread>

namespace remuda {

namespace {

[[noreturn]] void raise(const char* kind, const char* text) {
  const nb::object type = nb::module_::import_("remuda.errors").attr(kind);
  PyErr_SetString(type.ptr(), text);
  throw nb::python_error();
}

}  // namespace

void Entrance::enter(Kind kind) {
  const unsigned long thread = PyThread_get_thread_ident();
  if (is_taken() && thread != thread_)
    raise("StateError",
          "expected calls from one thread at a time, got one while another thread is in a call of this pool; give each "
          "thread a pool of its own, or take a lock around the calls. Nothing was sent");
  if (is_inside_ || (is_dealing_ && kind != Kind::kWithin))
    raise("StateError",
          "expected no call of the pool in the middle of another one, got one from code that interrupted it (a signal "
          "handler, a finalizer, or an env in this thread); call the pool after that call has returned. Nothing was "
          "sent");
  thread_ = thread;
  (kind == Kind::kDealing ? is_dealing_ : is_inside_) = true;
}

// Ends the call. Returns the deferred close if it is due now, else null.
nb::object Entrance::leave(Kind kind) {
  (kind == Kind::kDealing ? is_dealing_ : is_inside_) = false;
  return is_taken() ? nb::object() : std::exchange(close_, nb::object());
}

void Entrance::Stay::end() {
  is_over_ = true;
  const nb::object close = entrance_.leave(kind_);
  if (!close.is_valid()) return;
  close();
  raise("ClosedError", "the pool was closed in the course of this call");
}

// If the call has thrown, its caller receives that error. If the deferred close throws, too, its error is only
// reported.
Entrance::Stay::~Stay() {
  if (is_over_) return;
  const nb::object close = entrance_.leave(kind_);
  if (!close.is_valid()) return;
  try {
    close();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("closing a pool after a call that has raised");
  }
}

bool Entrance::put_off(nb::object close) {
  if (!is_taken()) return false;
  if (!close_.is_valid()) close_ = std::move(close);
  if (thread_ == PyThread_get_thread_ident()) return true;
  while (is_taken() || close_.is_valid()) {
    {
      nb::gil_scoped_release release;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
  return true;
}

}  // namespace remuda
