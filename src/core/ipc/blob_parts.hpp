// Writes bytes-like objects of Python to a blob ring, and reads blobs from it as bytearrays.
#pragma once

#include <span>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

// The buffers of a list of bytes-like objects. The spans stay valid as long as the PartBytes lives.
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

// Writes the parts to the ring. Returns false, and writes nothing, if the ring has no room for them.
bool write_parts(BlobWriter& writer, nb::handle parts);

// Reads a blob. Returns its parts as a list of bytearrays, so that arrays unpickled from them without a copy are
// writable.
nb::object read_parts(BlobReader& reader);

}  // namespace remuda
