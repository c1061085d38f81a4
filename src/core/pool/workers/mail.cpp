#include "pool/workers/mail.hpp"

#include <new>
#include <utility>

#include "ipc/blob_parts.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

namespace {

std::byte* add_part(nb::list& parts, std::uint64_t size) {
  nb::object part = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!part.is_valid()) {
    PyErr_Clear();
    throw std::bad_alloc();
  }
  parts.append(part);
  return reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(part.ptr()));
}

}  // namespace

Mail::Mail(Transfers& transfers, const nb::sequence& queues) : transfers_(transfers) {
  for (nb::handle pair : queues)
    queues_.push_back({pair[0].attr("put"), pair[1].attr("get_nowait"), pair[1].attr("empty")});
}

void Mail::post(std::uint32_t worker, nb::handle parts) {
  const PartBytes bytes(parts);
  if (queues_.empty()) {
    nb::gil_scoped_release release;  // safe, because `bytes` holds the buffers of the parts
    return transfers_.post(worker, bytes.bytes());
  }
  nb::list copies;
  for (const Bytes& part : bytes.bytes())
    if (std::byte* copy = add_part(copies, part.size()); !part.empty()) std::memcpy(copy, part.data(), part.size());
  queues_[worker].put(copies);
}

Mail::Arrival Mail::read(std::uint32_t worker, nb::object& parts) {
  if (!queues_.empty()) {
    const Queues& queues = queues_[worker];
    if (nb::cast<bool>(queues.is_empty())) return Arrival::kPartial;  // The record may arrive before its message.
    parts = queues.get();
    return Arrival::kWhole;
  }
  if (arriving_.size() <= worker) arriving_.resize(worker + 1);
  if (!transfers_[worker].is_reading()) arriving_[worker] = nb::list();
  const Arrival arrival =
      transfers_.read(worker, [&](std::uint64_t size) { return add_part(arriving_[worker], size); });
  if (arrival != Arrival::kPartial) parts = std::exchange(arriving_[worker], nb::list());
  return arrival;
}

}  // namespace remuda
