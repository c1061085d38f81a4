// A lease in the form of a base object for arrays.
//
// It is a capsule and not a class of the binding, because an array may outlive the interpreter. (NumPy does not release
// what it exports by DLPack once the interpreter ends, because it checks `Py_IsInitialized` first.) A capsule does not
// keep types and functions of the binding alive.
#pragma once

#include <memory>

#include "pool/batches/frames.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

nb::object as_base(std::unique_ptr<Lease> lease);

// Returns the arena that holds the memory of an array, also through views of views; null if the memory is not a pool's.
std::shared_ptr<Arena> arena_of(nb::handle array);

}  // namespace remuda
