// Defines the Python module. The functions in bindings/ register its contents.
#define REMUDA_IMPORTS_NUMPY
#include <system_error>

#include "bindings/bindings.hpp"
#include "pool/slots/parts.hpp"

using namespace nb::literals;
using namespace remuda;

namespace {

void* import_numpy() {
  import_array();
  return nullptr;
}

}  // namespace

NB_MODULE(_core, m) {
  // nanobind must not report leaks. If a thread is still in a call of the pool when the interpreter ends, the pool is
  // never freed. That is harmless, because the process ends, too. Tests enable the reports.
  nb::set_leak_warnings(false);
  m.def("set_leak_warnings", &nb::set_leak_warnings, "on"_a);

  m.doc() = "The C++ core of remuda: shared memory, wake-ups and the worker's inner loop. Internal.";
  import_numpy();
  if (PyErr_Occurred()) nb::raise_python_error();

  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const PartGone& error) {
      PyErr_SetString(nb::module_::import_("remuda.errors").attr("StateError").ptr(), error.what());
    } catch (const std::system_error& error) {
      PyObject* arguments = Py_BuildValue("(is)", error.code().value(), error.what());
      if (arguments != nullptr) PyErr_SetObject(PyExc_OSError, arguments);
      Py_XDECREF(arguments);
    }
  });

  bind_protocol(m);
  bind_memory(m);
  bind_logs(m);
  bind_batches(m);
  bind_hub(m);
  bind_worker(m);
  bind_system(m);
}
