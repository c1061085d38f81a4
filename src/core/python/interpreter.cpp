#include "python/interpreter.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

namespace remuda {

namespace {

using Question = int (*)();

// Looks up a function by name when the module is loaded. The limited API lacks these functions, but every CPython
// exports them.
Question find(const char* name) { return reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, name)); }

const Question gil_check = find("PyGILState_Check");
const Question finalizing_since_3_13 = find("Py_IsFinalizing");
const Question finalizing_until_3_12 = find("_Py_IsFinalizing");

}  // namespace

bool holds_gil() { return gil_check == nullptr || gil_check() != 0; }

bool is_finalizing() {
  const Question question = finalizing_since_3_13 != nullptr ? finalizing_since_3_13 : finalizing_until_3_12;
  return question != nullptr && question() != 0;
}

}  // namespace remuda

// Suspends a thread that requests the GIL while the interpreter finalises, until the process ends.
//
// From CPython 3.14 on the interpreter does this itself. Older versions end such a thread with pthread_exit, and glibc
// then unwinds the thread's stack without the GIL. Destructors that release references to Python objects crash
// (SIGSEGV), and noexcept functions abort. This can happen at any call that may run Python code, so catching it call by
// call is not possible. But unwinding calls the personality routine of each frame before any code of the frame. The
// linker replaces the C++ runtime's routine by the one below for every frame of this module, including nanobind's
// (`--wrap`, see CMakeLists.txt).
extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context) {
  if ((actions & _UA_FORCE_UNWIND) && remuda::is_finalizing())
    while (true) pause();
  return __real___gxx_personality_v0(version, actions, kind, exception, context);
}
}

#else

namespace remuda {
// Constants suffice on this platform. Only a fork releases memory without the GIL, and only glibc unwinds threads; both
// happen only on Linux.
bool holds_gil() { return true; }
bool is_finalizing() { return false; }
}  // namespace remuda

#endif
