// Blobs as Python sees them: a list of bytes-like objects going in, of bytearrays coming out.
#pragma once

#include <span>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

// The bytes of bytes-like objects, for as long as this lives.
class PartBytes {
 public:
  explicit PartBytes(nb::handle parts);
  ~PartBytes();
  PartBytes(const PartBytes&) = delete;
  PartBytes& operator=(const PartBytes&) = delete;

  std::span<const Bytes> bytes() const { return bytes_; }

 private:
  void release();

  std::vector<Py_buffer> views_;
  std::vector<Bytes> bytes_;
};

// False when the ring has no room for them.
bool write_parts(BlobWriter& writer, nb::handle parts);

// The parts are copies; arrays unpickled over them own writable memory.
nb::object read_parts(BlobReader& reader);

}  // namespace remuda
