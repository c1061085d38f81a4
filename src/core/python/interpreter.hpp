// Facts about the interpreter that a thread may query without the GIL.
#pragma once

namespace remuda {

// Whether the calling thread holds the GIL.
bool holds_gil();

// Whether the interpreter is finalising. A thread that requests the GIL then never gets it.
bool is_finalizing();

}  // namespace remuda
