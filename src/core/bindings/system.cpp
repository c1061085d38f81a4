// Bindings of operating system functions that Python lacks.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "bindings/bindings.hpp"
#include "os/descriptors.hpp"
#include "os/event.hpp"
#include "os/forks.hpp"
#include "os/process_group.hpp"
#include "os/process_tree.hpp"
#include "os/signals.hpp"
#include "os/worker_threads.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

constexpr double kLongest = 1e9;  // seconds; more nanoseconds would not fit into 64 bits
// A signal that comes just before a wait is handled after this time.
constexpr Nanoseconds kBetweenSignals = std::chrono::milliseconds(50);

// Returns whether the event is set within `seconds`. Waits without the GIL, and raises what a signal handler raises.
bool wait_for(Event& event, std::optional<double> seconds) {
  const auto limit = std::chrono::duration<double>(std::clamp(seconds.value_or(kLongest), 0.0, kLongest));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Nanoseconds>(limit);
  while (!event.is_set()) {
    const Nanoseconds left = deadline - Clock::now();
    if (seconds && left <= Nanoseconds::zero()) return false;
    {
      const nb::gil_scoped_release release;
      event.wait(seconds ? std::min(left, kBetweenSignals) : kBetweenSignals);
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
  return true;
}

void bind_event(nb::module_& m) {
  nb::class_<Event>(
      m, "Event",
      "An event that any number of threads can wait for, at the same time and repeatedly.\n\n"
      "A signal handler that raises ends a wait in the main thread, which can be repeated. The waits are\n"
      "those of the system, also if a program has replaced the locks of `threading`.")
      .def(nb::init<>())
      .def("set", &Event::set, "Sets the event permanently.")
      .def("is_set", &Event::is_set)
      .def("wait", &wait_for, "seconds"_a = nb::none(),
           "Returns whether the event is set within `seconds`; None: no limit.");
}

#if REMUDA_LINUX

void bind_descriptors(nb::module_& m) {
  nb::class_<Descriptors>(m, "Descriptors",
                          "Open file descriptors, which are closed by `close`, or when this object is freed.\n\n"
                          "In the main thread, a signal handler may raise between opening a descriptor and storing\n"
                          "its number. An iterator that is written in C opens and stores it in one step::\n\n"
                          "    fds = Descriptors(map(os.memfd_create, [name], [flags]))\n")
      .def(
          "__init__",
          [](Descriptors* self, const nb::iterable& fds) {
            Descriptors own;
            for (nb::handle fd : fds) own.add(nb::cast<int>(fd));
            new (self) Descriptors(std::move(own));
          },
          "fds"_a)
      .def("close", &Descriptors::close)
      .def("take_first", &Descriptors::take_first,
           "Returns the first descriptor, which the caller must close, and removes it.")
      .def(
          "__iter__", [](const Descriptors& fds) { return nb::iter(nb::cast(fds.numbers())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def("__getitem__", &Descriptors::at, "index"_a);
}

// Forks as `os.fork` does, but does not warn about other threads, as Python 3.12 and newer do: threads of the pool are
// among them, and locks that they may hold are freed in the child (`_system/forks.py`).
int fork_process() {
  PyOS_BeforeFork();
  const int pid = fork();
  const int problem = errno;
  if (pid == 0) {
    PyOS_AfterFork_Child();
  } else {
    PyOS_AfterFork_Parent();
  }
  if (pid >= 0) return pid;
  errno = problem;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

#endif

}  // namespace

void bind_system(nb::module_& m) {
  m.def("fork_count", [] { return fork_count; });
  // Calls a function in a thread that calls no Python function before. No trace function sees the call.
  m.def("call_untraced", [](const nb::callable& function) {
    nb::module_::import_("sys").attr("settrace")(nb::none());
    function();
  });
  // Python's `in` takes far longer than the pickling of a text that has letters of `part`.
  m.def(
      "contains",
      [](const nb::bytes& bytes, const nb::bytes& part) {
        const std::string_view whole(bytes.c_str(), bytes.size());
        return whole.find(std::string_view(part.c_str(), part.size())) != std::string_view::npos;
      },
      "bytes"_a, "part"_a);
  m.attr("FAMILY_VARIABLE") = kFamilyVariable;
  bind_event(m);
#if REMUDA_LINUX  // elsewhere there are no worker processes
  bind_descriptors(m);
  m.def("fork", &fork_process);
  m.attr("JOB_SIGNALS") = nb::tuple(nb::cast(job_signals()));
  nb::class_<HuntResult>(m, "HuntResult")
      .def_ro("survivors", &HuntResult::survivors)
      .def_ro("problem", &HuntResult::problem);
  m.def("kill_process_tree", &kill_process_tree, "keys"_a, "patience_ms"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("show_keys", &show_keys, "keys"_a);
  m.def("take_in_orphans", &take_in_orphans);
  m.def("fill_reserve", &fill_reserve);
  m.def("signal_group", &signal_group, "pidfd"_a, "pid"_a, "number"_a);
  m.def("reap_group", &reap_group, "pidfd"_a, "pid"_a, "patience_ms"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("exit_code_of", &exit_code_of, "pidfd"_a);
  m.def("follow_signals", &follow_signals, "owner"_a);
  m.def("tie_life_to", &tie_life_to, "pidfd"_a);
  m.def("trim_output", &trim_output, "fd"_a, "kept"_a);
  m.def("stop_at", &stop_at, "number"_a);
#endif
}

}  // namespace remuda
