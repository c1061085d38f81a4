#include "blob_parts.hpp"

namespace remuda {

namespace {

class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) < 0) nb::raise_python_error();
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Bytes bytes() const { return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }

 private:
  Py_buffer view_;
};

}  // namespace

bool write_parts(BlobWriter& writer, nb::handle parts) {
  std::vector<Buffer> buffers;
  std::vector<Bytes> bytes;
  for (nb::handle part : parts) bytes.push_back(buffers.emplace_back(part).bytes());
  return writer.write(bytes) != 0;
}

nb::object read_parts(BlobReader& reader) {
  nb::list parts;
  for (std::uint64_t size : reader.sizes()) {
    nb::object part = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    if (!part.is_valid()) nb::raise_python_error();
    reader.get(reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(part.ptr())), size);
    parts.append(part);
  }
  reader.done();
  return parts;
}

}  // namespace remuda
