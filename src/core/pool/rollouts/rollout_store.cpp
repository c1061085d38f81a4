#include "pool/rollouts/rollout_store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace remuda {

HeldRows RolloutStore::take(std::uint32_t rows) {
  if (const Piece* free = find_free(rows)) {
    free->is_held->store(true, std::memory_order_relaxed);  // only this thread takes rows
    return {free->first, free->is_held};
  }
  // Checks each piece only once, because another thread may free it in the meantime.
  std::erase_if(pieces_, [this](const Piece& piece) {
    if (!piece.is_free()) return false;
    release(piece);
    return true;
  });
  pieces_.reserve(pieces_.size() + 1);  // first, so that a later lack of memory changes nothing
  Piece piece{find_gap(rows), rows, std::make_shared<std::atomic<bool>>(true)};
  try {
    for (const Rows& column : columns_) arena_->reserve(range_of(column, piece));
  } catch (...) {
    release(piece);
    throw;
  }
  HeldRows held(piece.first, piece.is_held);
  const auto behind =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& other) { return other.first > piece.first; });
  pieces_.insert(behind, std::move(piece));
  return held;
}

std::uint64_t RolloutStore::bytes_to_reserve(std::uint32_t rows) const {
  if (find_free(rows) != nullptr) return 0;
  std::uint64_t bytes = 0;
  for (const Rows& column : columns_) bytes += rows * column.bytes;
  return bytes;
}

void RolloutStore::clear(std::uint32_t first, std::uint32_t rows) const {
  for (const Rows& column : columns_)
    if (column.is_cleared)
      std::memset(arena_->at<std::byte>(column.offset + first * column.bytes), 0, rows * column.bytes);
}

void RolloutStore::add_column(Rows rows) {
  for (const Piece& piece : pieces_) arena_->reserve(range_of(rows, piece));
  columns_.push_back(rows);
}

// Returns a free piece of this size, or null.
const RolloutStore::Piece* RolloutStore::find_free(std::uint32_t rows) const {
  const auto is_fitting = [rows](const Piece& piece) { return piece.rows == rows && piece.is_free(); };
  const auto found = std::find_if(pieces_.begin(), pieces_.end(), is_fitting);
  return found == pieces_.end() ? nullptr : &*found;
}

// Returns the first row of a gap of at least `rows` rows between the pieces.
std::uint32_t RolloutStore::find_gap(std::uint32_t rows) const {
  std::uint32_t first = 0;
  for (const Piece& piece : pieces_) {
    if (piece.first - first >= rows) return first;
    first = piece.first + piece.rows;
  }
  if (rows > count_ - first)
    throw std::system_error(ENOMEM, std::generic_category(), "no memory is left for a rollout");
  return first;
}

void RolloutStore::release(const Piece& piece) const {
  for (const Rows& column : columns_) arena_->release(range_of(column, piece));
}

}  // namespace remuda
