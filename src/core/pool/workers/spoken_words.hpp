// How often the workers have logged or warned, and how much of that the pool's caller has heard: it is handed on before
// the results of what they said it in.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/plan.hpp"

namespace remuda {

class SpokenWords {
 public:
  explicit SpokenWords(const Words& words) : words_(words) {}

  std::uint32_t said() const { return words_.said.load(std::memory_order_relaxed); }
  bool any_unheard() const { return said() != heard_; }
  void note_heard(std::uint32_t said) { heard_ = said; }

 private:
  const Words& words_;
  std::uint32_t heard_ = 0;
};

}  // namespace remuda
