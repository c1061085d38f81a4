// Suspends a thread that requests the GIL while the interpreter finalises, until the process ends.
//
// From CPython 3.14 on the interpreter does this itself. Before, it ends such a thread with pthread_exit, which with
// glibc unwinds the thread's stack without the GIL. Destructors that release references to Python objects then crash
// (SIGSEGV), and noexcept functions abort. This may happen wherever Python code can run, including a `__del__` when any
// reference is released, so catching it call by call is not possible. But unwinding first calls the personality routine
// of each frame, innermost first, before it runs any code of the frame. The linker puts this routine in the place of
// the C++ runtime's for every frame of this module, including nanobind's (`--wrap`, see CMakeLists.txt).
#include "os/platform.hpp"

#if REMUDA_LINUX

#include <unistd.h>
#include <unwind.h>

#include "python/interpreter.hpp"

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

#endif
