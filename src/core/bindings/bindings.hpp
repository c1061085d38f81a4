// Functions that register the Python bindings, one for each area of the core. `module.cpp` calls them in the order
// below, because a signature can name only types that were registered before.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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
