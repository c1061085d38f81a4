// Writes bytes-like objects of Python to a blob ring, and reads blobs from it as bytearrays.
#pragma once

#include <new>
#include <span>
#include <vector>

#include "ipc/blob_ring.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

// The buffers of a list of bytes-like objects. The spans stay valid as long as the PartBytes lives.
class PartBytes {
 public:
  PartBytes() = default;
  explicit PartBytes(nb::handle parts) : PartBytes() {  // if this constructor throws, the destructor runs
    for (nb::handle part : parts) {
      Py_buffer view;
      if (PyObject_GetBuffer(part.ptr(), &view, PyBUF_SIMPLE) < 0) nb::raise_python_error();
      views_.push_back(view);
      bytes_.emplace_back(static_cast<const std::byte*>(view.buf), static_cast<std::size_t>(view.len));
    }
  }
  ~PartBytes() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  PartBytes(const PartBytes&) = delete;
  PartBytes& operator=(const PartBytes&) = delete;

  std::span<const Bytes> bytes() const { return bytes_; }

 private:
  std::vector<Py_buffer> views_;
  std::vector<Bytes> bytes_;
};

// Writes the parts to the ring. Returns false, and writes nothing, if the ring has no room for them.
inline bool write_parts(BlobWriter& writer, nb::handle parts) { return writer.write(PartBytes(parts).bytes()) != 0; }

// Appends an uninitialised bytearray to the parts and returns its memory. Throws std::bad_alloc if memory runs out.
inline std::byte* add_part(nb::list& parts, std::uint64_t size) {
  nb::object part = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!part.is_valid()) {
    PyErr_Clear();
    throw std::bad_alloc();
  }
  parts.append(part);
  return reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(part.ptr()));
}

// Reads a blob. Returns its parts as a list of bytearrays, so that arrays unpickled from them without a copy are
// writable.
inline nb::object read_parts(BlobReader& reader) {
  nb::list parts;
  for (std::uint64_t size : reader.sizes()) reader.get(add_part(parts, size), size);
  reader.done();
  return parts;
}

}  // namespace remuda
