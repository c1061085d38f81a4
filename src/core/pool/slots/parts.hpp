// How the slots are divided into parts, and by which numbers callers know these.
//
// No number is given twice: those of parts of an earlier division stand for none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "pool/batches/lendings.hpp"
#include "pool/slots/part.hpp"
#include "pool/slots/slots.hpp"

namespace remuda {

// The slots were divided into other parts since the caller learned this number.
struct PartGone : std::out_of_range {
  PartGone() : std::out_of_range("the pool was split in the course of this call; use what split() has returned") {}
};

class Parts {
 public:
  // There are none before `divide`.  `frames`: of each part, the scratch frame among them.
  Parts(Slots& slots, std::uint32_t frames) : slots_(slots), frames_(frames) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Divides the slots anew, each into one of these, while nothing is pending.  `lendings` is told which rows the frames
  // of each are.  Returns the number of the first; the others' follow.
  std::uint32_t divide(std::vector<std::vector<std::uint32_t>> divisions, Lendings& lendings);

  // Of the parts that there are.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> numbers(parts_.size());
    std::iota(numbers.begin(), numbers.end(), first_);
    return numbers;
  }
  bool has(std::uint32_t number) const { return index(number) < parts_.size(); }
  // From 0, in the order of the parts that there are.
  std::uint32_t index(std::uint32_t number) const { return number - first_; }
  // Throws PartGone if there is none.
  Part& at(std::uint32_t number) {
    if (!has(number)) throw PartGone();
    return parts_[index(number)];
  }
  const Part& at(std::uint32_t number) const { return const_cast<Parts*>(this)->at(number); }

  // The one that a slot is in, and its number.
  Part& of(std::uint32_t slot) { return parts_[slots_[slot].part]; }
  const Part& of(std::uint32_t slot) const { return parts_[slots_[slot].part]; }
  std::uint32_t number_of(std::uint32_t slot) const { return first_ + slots_[slot].part; }

  std::uint32_t in_flight() const {
    std::uint32_t count = 0;
    for (const Part& part : parts_) count += part.in_flight();
    return count;
  }
  bool any_pending() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.pending() != 0; });
  }

 private:
  void retire();
  Part& add(std::vector<std::uint32_t> slots, std::uint32_t first_position);

  Slots& slots_;
  const std::uint32_t frames_;
  std::vector<Part> parts_;
  std::uint32_t first_ = 0;  // its number
  // Of how the slots were divided before: their rows lie elsewhere now, but some are still held.
  std::vector<std::shared_ptr<FrameBook>> books_before_;
};

}  // namespace remuda
