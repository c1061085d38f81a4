// A lease as the base object of arrays.
//
// It is a capsule and no class of the binding: who holds an array may keep it past the end of the interpreter (what
// NumPy exports by DLPack is not given back any more from the moment that the interpreter ends, for NumPy asks
// `Py_IsInitialized` first), and must not keep types and functions of the binding alive with it.
#pragma once

#include <memory>

#include "pool/batches/frames.hpp"
#include "python/numpy_api.hpp"

namespace remuda {

nb::object as_base(std::unique_ptr<Lease> lease);

// The arena whose memory an array is a view of, through any number of views; null: it is of no pool.
std::shared_ptr<Arena> arena_of(nb::handle array);

}  // namespace remuda
