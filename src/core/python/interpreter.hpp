// Two questions about the interpreter that a thread may ask without the GIL.
#pragma once

namespace remuda {

// Whether this thread has the GIL.
bool holds_gil();

// Whether the interpreter is being ended: who asks for the GIL now never gets it.
bool is_finalizing();

}  // namespace remuda
