// Converts blobs between a blob ring and Python: bytes-like objects are written, bytearrays are read.
#pragma once

#include <span>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

// The buffers of a list of bytes-like objects. The spans stay valid as long as this object lives.
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

// Returns false, and writes nothing, when the ring has no room for the parts.
bool write_parts(BlobWriter& writer, nb::handle parts);

// Returns a list of bytearrays, which are copies: arrays unpickled over them own writable memory.
nb::object read_parts(BlobReader& reader);

}  // namespace remuda
