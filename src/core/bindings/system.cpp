// Bindings of operating system functions that Python lacks, or that in Python are not safe from signal handlers.
#include "bindings/bindings.hpp"
#include "os/descriptors.hpp"
#include "os/forks.hpp"
#include "os/process_group.hpp"
#include "os/process_tree.hpp"
#include "os/signals.hpp"
#include "os/worker_threads.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

// Calls each of `functions`, even if earlier ones raised, then raises the first exception. If all functions are written
// in C, no signal handler runs in between: Python runs signal handlers, which may raise, between any two of its own
// instructions, but never within C++ code.
void call_all(const nb::list& functions) {
  std::optional<nb::python_error> first;
  for (nb::handle function : functions) {
    try {
      function();
    } catch (nb::python_error& error) {
      if (!first) first.emplace(error);
    }
  }
  if (first) throw nb::python_error(*first);
}

#if REMUDA_LINUX

// Adds descriptors from an iterator that is written in C. Such an iterator runs no signal handler between opening a
// descriptor and returning it, so no descriptor is lost.
void extend(Descriptors& descriptors, nb::iterable fds) {
  descriptors.make_room();
  for (nb::handle fd : fds) {
    descriptors.add(nb::cast<int>(fd));
    descriptors.make_room();
  }
}

void bind_descriptors(nb::module_& m) {
  nb::class_<Descriptors>(m, "Descriptors",
                          "Open file descriptors, which are closed by `close`, or when this object is freed.\n\n"
                          "A signal handler may raise between any two steps of the interpreter, so also between\n"
                          "opening a descriptor and storing its number. Therefore the iterator that opens the\n"
                          "descriptors adds them in the same step::\n\n"
                          "    fds.extend(map(os.memfd_create, [name], [flags]))\n")
      .def(nb::init<>())
      .def("extend", &extend, "fds"_a)
      .def("close", &Descriptors::close)
      .def("close_first", &Descriptors::close_first)
      .def("__len__", &Descriptors::size)
      .def(
          "__iter__", [](const Descriptors& fds) { return nb::iter(nb::cast(fds.numbers())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def("__getitem__", &Descriptors::at, "index"_a);
}

// Calls Python's `os.fork` from C++, so that no signal handler can run between the fork and storing its result, or
// between blocking signals and unblocking them.
void fork_into(nb::list pids) {
  BlockedSignals blocked(job_signals());
  const nb::object pid = nb::module_::import_("os").attr("fork")();
  pids.append(pid);
  if (nb::cast<int>(pid) == 0) blocked.keep();
}

nb::object without_job_signals(nb::handle function) {
  const BlockedSignals blocked(job_signals());
  return function();
}

#endif

}  // namespace

void bind_system(nb::module_& m) {
  m.def("call_all", &call_all, "functions"_a);
  m.def("fork_count", [] { return fork_count; });
  m.attr("FAMILY_VARIABLE") = kFamilyVariable;
#if REMUDA_LINUX  // elsewhere there are no worker processes
  bind_descriptors(m);
  m.def("fork_into", &fork_into, "pids"_a,
        "Forks, and appends the result of `os.fork` to `pids`. JOB_SIGNALS stay blocked in the child.");
  m.def("without_job_signals", &without_job_signals, "function"_a,
        "Calls a function that starts a program. JOB_SIGNALS are blocked in the program until it unblocks them.");
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
