// Makes results of steps as a worker writes them, with all times 0.
#pragma once

#include "ipc/protocol.hpp"

inline remuda::Result result_of(std::uint32_t env, std::uint32_t row, std::uint32_t count, std::uint32_t flags = 0,
                                std::uint64_t sequence = 0) {
  return {env, row, count, flags, sequence, 0, 0, remuda::Op::kStep, {}};
}
