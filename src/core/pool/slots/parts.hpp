// The division of the slots into parts, and the numbers by which callers name the parts.
//
// No number is used twice, so the numbers of an earlier division stay invalid.
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

// Raised if a part number belongs to an earlier division.
struct PartGone : std::out_of_range {
  PartGone() : std::out_of_range("the pool was split in the course of this call; use what split() has returned") {}
};

class Parts {
 public:
  // There are no parts before `divide`. `frames`: the number of frames of each part, including the scratch frame.
  Parts(Slots& slots, std::uint32_t frames) : slots_(slots), frames_(frames) {}

  // Replaces all parts; each element of `divisions` has the slots of one new part. No slot may be pending. Registers
  // the frames of each part with `lendings`. Returns the number of the first part; the other parts have the following
  // numbers.
  std::uint32_t divide(std::vector<std::vector<std::uint32_t>> divisions, Lendings& lendings) {
    if (any_pending()) throw std::logic_error("a pool is split while nothing is pending");
    retire();
    std::uint32_t position = 0;
    for (auto& slots : divisions) {
      const std::uint32_t first = position;
      std::sort(slots.begin(), slots.end());
      for (std::uint32_t slot : slots) slots_.place(slot, static_cast<std::uint32_t>(parts_.size()), position++);
      auto book = std::make_shared<FrameBook>(frames_ - 1, books_before_);
      lendings.add_book(book, first, position - first);
      parts_.emplace_back(std::move(slots), first, slots_.count(), std::move(book), frames_);
    }
    return first_;
  }

  // The numbers of the current parts.
  std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> numbers(parts_.size());
    std::iota(numbers.begin(), numbers.end(), first_);
    return numbers;
  }
  bool has(std::uint32_t number) const { return index(number) < parts_.size(); }
  // The index of a part, from 0, in the current division.
  std::uint32_t index(std::uint32_t number) const { return number - first_; }
  // Throws PartGone if no part has this number.
  Part& at(std::uint32_t number) {
    if (!has(number)) throw PartGone();
    return parts_[index(number)];
  }
  const Part& at(std::uint32_t number) const { return const_cast<Parts*>(this)->at(number); }

  // `of` returns the part that a slot is in, and `number_of` the number of this part.
  Part& of(std::uint32_t slot) { return parts_[slots_.part_of(slot)]; }
  const Part& of(std::uint32_t slot) const { return parts_[slots_.part_of(slot)]; }
  std::uint32_t number_of(std::uint32_t slot) const { return first_ + slots_.part_of(slot); }

  std::uint32_t in_flight() const {
    std::uint32_t count = 0;
    for (const Part& part : parts_) count += part.in_flight();
    return count;
  }
  bool any_pending() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.pending() != 0; });
  }

 private:
  // Removes all parts. Keeps the FrameBooks of those parts that still have leased frames.
  void retire() {
    for (Part& part : parts_) {
      part.end_rollout();
      books_before_.push_back(part.book());
    }
    std::erase_if(books_before_, [](const auto& book) { return book->all_back(); });
    first_ += static_cast<std::uint32_t>(parts_.size());
    parts_.clear();
  }

  Slots& slots_;
  const std::uint32_t frames_;
  std::vector<Part> parts_;
  std::uint32_t first_ = 0;  // The number of parts_[0].
  // The FrameBooks of earlier divisions with frames that are still leased. These frames have other rows than the
  // current ones.
  std::vector<std::shared_ptr<FrameBook>> books_before_;
};

}  // namespace remuda
