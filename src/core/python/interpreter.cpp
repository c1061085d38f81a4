#include "python/interpreter.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <dlfcn.h>

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

#else

namespace remuda {
// Constants suffice on this platform. Only a fork releases memory without the GIL, and only glibc unwinds threads; both
// happen only on Linux.
bool holds_gil() { return true; }
bool is_finalizing() { return false; }
}  // namespace remuda

#endif
