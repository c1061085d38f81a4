// Lets a thread that asks for the GIL while the interpreter finalises sleep until the process ends.
//
// From CPython 3.14 on the interpreter sees to that itself.  Before, it ends such a thread with pthread_exit, which
// with glibc unwinds the thread's stack: without the GIL, through destructors that give up references to Python objects
// (SIGSEGV) and through functions that are noexcept (abort).  It may happen wherever Python code can run, a `__del__`
// under any reference that is given up included, so catching it call by call would not do.  But unwinding asks each
// frame's personality routine, innermost first, before it runs anything of it; the linker puts this one in the place of
// the C++ runtime's for every frame of this module, nanobind's too (`--wrap`, see CMakeLists.txt).
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
