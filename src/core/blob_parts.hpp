// Blobs as Python sees them: a list of bytes-like objects going in, of bytearrays coming out.
#pragma once

#include "blob_ring.hpp"
#include "numpy_api.hpp"

namespace remuda {

// False when the ring has no room for them.
bool write_parts(BlobWriter& writer, nb::handle parts);

// The parts are copies; arrays unpickled over them own writable memory.
nb::object read_parts(BlobReader& reader);

}  // namespace remuda
