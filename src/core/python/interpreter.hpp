// Queries about the interpreter that a thread may make without the GIL.
#pragma once

namespace remuda {

// Whether this thread holds the GIL.
bool holds_gil();

// Whether the interpreter is finalising: a thread that requests the GIL now never gets it.
bool is_finalizing();

}  // namespace remuda
