// Suspends a thread that requests the GIL while the interpreter finalises, until the process ends.
//
// From CPython 3.14 on the interpreter does this itself. Older versions end such a thread with pthread_exit, and glibc
// then unwinds the thread's stack without the GIL. Destructors that release references to Python objects crash
// (SIGSEGV), and noexcept functions abort. This can happen at any call that may run Python code, so catching it call by
// call is not possible. But unwinding calls the personality routine of each frame before any code of the frame. The
// linker replaces the C++ runtime's routine by the one below for every frame of this module, including nanobind's
// (`--wrap`, see CMakeLists.txt).
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
