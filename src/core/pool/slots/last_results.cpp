#include "pool/slots/last_results.hpp"

#include <cstring>

namespace remuda {

void LastResults::repeat(std::uint32_t env, std::uint32_t row) const {
  copy_leaves(env, columns_->columns.data() + kFirstLeafWithoutInfo, row);
  for (const Column& column : columns_->computed)
    std::memcpy(column.row(row), column.row(row_of(env)), column.row_bytes());
  set_flags(row, false);
  *at<std::uint64_t>(kInfoMask, row) = 0;
}

void LastResults::end_episode(std::uint32_t env, std::uint32_t row) {
  repeat(env, row);
  set_fresh(env);
  set_flags(row, true);
  set_flags(row_of(env), true);
}

void LastResults::end_before_reset(std::uint32_t env, std::uint32_t row) {
  copy_leaves(env, columns_->finals.data(), row);
  for (const Column& column : columns_->computed)  // Step columns stay zero; the reset writes the others.
    std::memset(column.row(row), 0, column.row_bytes());
  set_flags(row, true);
  *at<std::uint64_t>(kInfoMask, row) = 0;
  set_fresh(env);
}

void LastResults::copy_leaves(std::uint32_t env, const Column* to, std::uint32_t row) const {
  const std::uint32_t kept = row_of(env);
  for (std::size_t leaf = kFirstLeafWithoutInfo; leaf < columns_->columns.size(); ++leaf, ++to)
    std::memcpy(to->row(row), columns_->columns[leaf].row(kept), to->row_bytes());
}

// Writes reward 0 and the flags. An episode that the pool ends is truncated, never terminated.
void LastResults::set_flags(std::uint32_t row, bool truncated) const {
  const Column& reward = columns_->columns[kReward];
  std::memset(reward.row(row), 0, reward.row_bytes());
  *at<bool>(kTerminated, row) = false;
  *at<bool>(kTruncated, row) = truncated;
}

}  // namespace remuda
