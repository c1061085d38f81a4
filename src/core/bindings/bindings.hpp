// What Python sees of the core, a file for each room. `module.cpp` calls them in this order: a signature names types
// that were registered before it.
#pragma once

#include "python/numpy_api.hpp"

namespace remuda {

void bind_protocol(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_logs(nb::module_& m);
void bind_batches(nb::module_& m);
void bind_hub(nb::module_& m);
void bind_worker(nb::module_& m);
void bind_system(nb::module_& m);

}  // namespace remuda
