#include "pool/slots/part.hpp"

#include <stdexcept>
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

namespace {

std::uint32_t count_of(std::span<const Run> runs) {
  std::uint32_t count = 0;
  for (const Run& run : runs) count += run.count;
  return count;
}

}  // namespace

std::uint32_t Part::send(std::uint32_t count, std::uint32_t in_rollout) {
  const std::uint32_t frame = count == slots_.size() && book_->any_free() ? book_->take() + 1 : 0;
  was_sent_to_all_ = count + in_rollout == slots_.size();
  rows_out_[frame] += count;
  in_flight_ += count;
  return frame;
}

void Part::begin(std::shared_ptr<Rollout> rollout, std::uint32_t action_shift) {
  if (filling_ != 0) throw std::logic_error("a rollout begins when nothing is pending that fills another");
  end_rollout();  // stops these slots from filling the previous rollout
  rollout_ = std::move(rollout);
  first_result_ = rollout_->first_row() + rollout_->width();
  action_shift_ = action_shift;
}

void Part::end_rollout() {
  if (!rollout_) return;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) rollout_->close(first_position_ + i);
  if (filling_ == 0) rollout_.reset();
}

std::vector<std::uint32_t> Part::send_to_rollout(Op op, const std::vector<std::uint32_t>& targets, const Slots& slots) {
  std::vector<std::uint32_t> rows;
  if (!rollout_) return rows;
  for (std::uint32_t slot : targets) {
    const std::uint32_t position = slots[slot].position;
    const bool is_there = rollout_->wants(op, position);
    rows.push_back(is_there ? rollout_->next_row(position) : kNoRow);
    if (!is_there) continue;
    rollout_->advance(position);
    ++filling_;
    in_flight_ += 1;
  }
  return rows;
}

void Part::fill(std::span<const Run> runs) {
  for (const Run& run : runs)
    if (is_in_rollout(run.row)) rollout_->fill(run.row, run.count);
}

void Part::finish(const Run& run) {
  ready_count_ += run.count;  // before the slots are no longer in flight, see `pending`
  in_flight_ -= run.count;
  ready_.push_back(run);
}

void Part::drop(std::uint32_t row) {
  in_flight_ -= 1;
  free_rows(row, 1);
}

void Part::fail(std::uint32_t row) {
  unraised_ += 1;  // before the slot is no longer in flight, see `pending`
  drop(row);
}

void Part::release_failed(Slots& slots) {
  if (unraised_ == 0) return;
  for (std::uint32_t slot : slots_)
    if (slots[slot].state == SlotState::kFailed) slots.release(slot);
  unraised_ = 0;
}

std::vector<Run> Part::first_ready(std::uint32_t limit) const {
  if (limit >= ready_count_) return ready_;
  std::vector<Run> first;
  for (auto next = ready_.begin(); limit != 0; ++next) {
    Run& run = first.emplace_back(*next);
    run.count = std::min(run.count, limit);
    limit -= run.count;
  }
  return first;
}

void Part::bring_forward(const std::vector<std::uint32_t>& slots, std::uint32_t width) {
  std::vector<Run> first, others;
  for (const Run& run : ready_)
    for (std::uint32_t i = 0; i < run.count; i += width) {
      const Run one{run.slot + i, run.row + i, width, run.flags};
      (std::find(slots.begin(), slots.end(), one.slot) != slots.end() ? first : others).push_back(one);
    }
  first.insert(first.end(), others.begin(), others.end());
  ready_ = std::move(first);
}

void Part::remove_ready(std::uint32_t limit) {
  if (limit >= ready_count_) {
    ready_count_ = 0;
    return ready_.clear();
  }
  ready_count_ -= limit;
  auto next = ready_.begin();
  for (; limit >= next->count; ++next) limit -= next->count;
  next->slot += limit;  // The rest of the run stays ready.
  next->row += limit;
  next->count -= limit;
  ready_.erase(ready_.begin(), next);
}

// Each slot has one command at a time. So if all slots are ready, and the latest command was sent to all of them, these
// are its results.
bool Part::are_of_all(std::span<const Run> runs) const { return was_sent_to_all_ && count_of(runs) == slots_.size(); }

bool Part::is_whole_frame(std::span<const Run> runs) const {
  if (runs.empty()) return false;
  const bool is_there = is_in_rollout(runs[0].row);
  auto frame_of = [&](std::uint32_t row) { return is_there ? rollout_->frame_of(row) : row / frame_rows_; };
  const std::uint32_t frame = frame_of(runs[0].row);
  for (const Run& run : runs)
    if (is_in_rollout(run.row) != is_there || frame_of(run.row) != frame) return false;
  return (is_there || frame != 0) && count_of(runs) == slots_.size();
}

void Part::free_rows(std::uint32_t row, std::uint32_t count) {
  if (is_in_rollout(row)) {
    rollout_->settle(row, count);
    filling_ -= count;
    if (filling_ == 0 && rollout_->is_full(first_position_, static_cast<std::uint32_t>(slots_.size())))
      rollout_.reset();
    return;
  }
  const std::uint32_t frame = row / frame_rows_;
  rows_out_[frame] -= count;
  if (rows_out_[frame] == 0 && frame != 0) book_->give_back(frame - 1);
}

}  // namespace remuda
