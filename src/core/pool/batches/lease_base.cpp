#include "pool/batches/lease_base.hpp"

namespace remuda {

namespace {

constexpr char kName[] = "remuda.Lease";

void end_lease(PyObject* capsule) { delete static_cast<Lease*>(PyCapsule_GetPointer(capsule, kName)); }

}  // namespace

nb::object as_base(std::unique_ptr<Lease> lease) {
  nb::object base = nb::steal(PyCapsule_New(lease.get(), kName, end_lease));
  if (!base.is_valid()) nb::raise_python_error();
  lease.release();
  return base;
}

std::shared_ptr<Arena> arena_of(nb::handle array) {
  PyObject* base = array.ptr();
  while (base != nullptr && PyArray_Check(base)) base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(base));
  if (base == nullptr || PyCapsule_IsValid(base, kName) == 0) return nullptr;
  return static_cast<Lease*>(PyCapsule_GetPointer(base, kName))->arena();
}

}  // namespace remuda
