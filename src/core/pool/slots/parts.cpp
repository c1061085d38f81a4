#include "pool/slots/parts.hpp"

#include <stdexcept>

namespace remuda {

std::uint32_t Parts::divide(std::vector<std::vector<std::uint32_t>> divisions, Lendings& lendings) {
  if (any_pending()) throw std::logic_error("a pool is split while nothing is pending");
  retire();
  std::uint32_t position = 0;
  for (auto& slots : divisions) {
    const std::uint32_t first = position;
    std::sort(slots.begin(), slots.end());
    for (std::uint32_t slot : slots) slots_.place(slot, static_cast<std::uint32_t>(parts_.size()), position++);
    lendings.add_book(add(std::move(slots), first).book(), first, position - first);
  }
  return first_;
}

// Removes all parts. Keeps the FrameBooks of those parts that still have leased frames.
void Parts::retire() {
  for (Part& part : parts_) {
    part.end_rollout();
    books_before_.push_back(part.book());
  }
  std::erase_if(books_before_, [](const auto& book) { return book->all_back(); });
  first_ += static_cast<std::uint32_t>(parts_.size());
  parts_.clear();
}

Part& Parts::add(std::vector<std::uint32_t> slots, std::uint32_t first_position) {
  auto book = std::make_shared<FrameBook>(frames_ - 1, books_before_);
  return parts_.emplace_back(std::move(slots), first_position, slots_.count(), std::move(book), frames_);
}

}  // namespace remuda
