#include "pool/part.hpp"

#include <algorithm>
#include <unordered_map>

namespace remuda {

std::vector<Run> in_order(const std::vector<Run>& runs, const std::vector<std::uint32_t>& slots, std::uint32_t width) {
  std::unordered_map<std::uint32_t, Run> row_of;
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; i += width)
      row_of[run.slot + i] = {run.slot + i, run.row + i, width, run.flags};
  std::vector<Run> ordered;
  for (std::size_t i = 0; i < slots.size(); i += width) ordered.push_back(row_of.at(slots[i]));
  return ordered;
}

std::uint32_t Part::send(std::uint32_t count) {
  const std::uint32_t frame = count == slots_.size() && book_->any_free() ? book_->take() + 1 : 0;
  rows_out_[frame] += count;
  in_flight_ += count;
  return frame;
}

void Part::finish(const Run& run) {
  in_flight_ -= run.count;
  ready_count_ += run.count;
  ready_.push_back(run);
}

void Part::drop(std::uint32_t row) {
  --in_flight_;
  free_rows(row, 1);
}

std::vector<Run> Part::take(std::uint32_t limit) {
  std::vector<Run> taken;
  if (limit >= ready_count_) {
    ready_count_ = 0;
    taken.reserve(ready_.size());  // the next ones will be about as many
    std::swap(taken, ready_);
    return taken;
  }
  ready_count_ -= limit;
  auto next = ready_.begin();
  for (; limit != 0; ++next) {
    Run& run = taken.emplace_back(*next);
    run.count = std::min(run.count, limit);
    limit -= run.count;
    if (run.count == next->count) continue;
    next->slot += run.count;  // the rest of it stays
    next->row += run.count;
    next->count -= run.count;
    break;
  }
  ready_.erase(ready_.begin(), next);
  return taken;
}

bool Part::is_whole_frame(std::span<const Run> runs) const {
  if (runs.empty()) return false;
  const std::uint32_t frame = runs[0].row / frame_rows_;
  std::uint32_t count = 0;
  for (const Run& run : runs) {
    if (run.row / frame_rows_ != frame) return false;
    count += run.count;
  }
  return frame != 0 && count == slots_.size();
}

std::uint32_t Part::lend(std::uint32_t row) {
  const std::uint32_t frame = row / frame_rows_;
  rows_out_[frame] = 0;
  return frame;
}

void Part::free_rows(std::uint32_t row, std::uint32_t count) {
  const std::uint32_t frame = row / frame_rows_;
  rows_out_[frame] -= count;
  if (rows_out_[frame] == 0 && frame != 0) book_->give_back(frame - 1);
}

}  // namespace remuda
