#include "ipc/blob_parts.hpp"

#include "python/numpy_api.hpp"

namespace remuda {

PartBytes::PartBytes(nb::handle parts) {
  for (nb::handle part : parts) {
    Py_buffer view;
    if (PyObject_GetBuffer(part.ptr(), &view, PyBUF_SIMPLE) < 0) {
      release();  // the destructor does not run when the constructor throws
      nb::raise_python_error();
    }
    views_.push_back(view);
    bytes_.emplace_back(static_cast<const std::byte*>(view.buf), static_cast<std::size_t>(view.len));
  }
}

PartBytes::~PartBytes() { release(); }

void PartBytes::release() {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
}

bool write_parts(BlobWriter& writer, nb::handle parts) { return writer.write(PartBytes(parts).bytes()) != 0; }

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
