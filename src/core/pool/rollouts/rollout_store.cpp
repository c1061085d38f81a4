#include "pool/rollouts/rollout_store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace remuda {

std::uint32_t RolloutStore::take(std::uint32_t rows) {
  std::lock_guard lock(mutex_);
  if (const auto fitting = find_free(rows); fitting != pieces_.end()) {
    const Piece rest{fitting->first + rows, fitting->rows - rows, false};
    const std::uint32_t first = fitting->first;
    fitting->rows = rows;
    fitting->is_taken = true;
    if (rest.rows != 0) pieces_.insert(fitting + 1, rest);
    return first;
  }
  drop_free();
  const Piece piece{find_gap(rows), rows, true};
  pieces_.reserve(pieces_.size() + 1);  // before there is memory that a failure would leave behind
  try {
    reserve(piece);
  } catch (...) {
    release(piece);
    throw;
  }
  const auto behind =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& other) { return other.first > piece.first; });
  pieces_.insert(behind, piece);
  return piece.first;
}

void RolloutStore::give_back(std::uint32_t first) {
  std::lock_guard lock(mutex_);
  for (Piece& piece : pieces_)
    if (piece.first == first) piece.is_taken = false;
  merge_free();
}

void RolloutStore::clear(std::uint32_t first, std::uint32_t rows) const {
  std::lock_guard lock(mutex_);
  for (const Rows& column : columns_)
    if (column.is_cleared)
      std::memset(arena_->at<std::byte>(column.offset + first * column.bytes), 0, rows * column.bytes);
}

std::uint64_t RolloutStore::bytes_to_reserve(std::uint32_t rows) const {
  std::lock_guard lock(mutex_);
  const bool fits = std::any_of(pieces_.begin(), pieces_.end(),
                                [rows](const Piece& piece) { return !piece.is_taken && piece.rows >= rows; });
  return fits ? 0 : rows * bytes_of_row();
}

void RolloutStore::add_column(Rows rows) {
  std::lock_guard lock(mutex_);
  for (const Piece& piece : pieces_) arena_->reserve(stretch(rows, piece));
  columns_.push_back(rows);
}

// The smallest that is large enough.
RolloutStore::Pieces::iterator RolloutStore::find_free(std::uint32_t rows) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece)
    if (!piece->is_taken && piece->rows >= rows && (best == pieces_.end() || piece->rows < best->rows)) best = piece;
  return best;
}

// Where so many rows are nobody's.
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

void RolloutStore::drop_free() {
  for (const Piece& piece : pieces_)
    if (!piece.is_taken) release(piece);
  std::erase_if(pieces_, [](const Piece& piece) { return !piece.is_taken; });
}

// Neighbours become one piece.
void RolloutStore::merge_free() {
  for (std::size_t i = 1; i < pieces_.size();) {
    Piece &before = pieces_[i - 1], &piece = pieces_[i];
    if (before.is_taken || piece.is_taken || before.first + before.rows != piece.first) {
      ++i;
      continue;
    }
    before.rows += piece.rows;
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::uint64_t RolloutStore::bytes_of_row() const {
  std::uint64_t bytes = 0;
  for (const Rows& column : columns_) bytes += column.bytes;
  return bytes;
}

void RolloutStore::reserve(const Piece& piece) const {
  for (const Rows& column : columns_) arena_->reserve(stretch(column, piece));
}

void RolloutStore::release(const Piece& piece) const {
  for (const Rows& column : columns_) arena_->release(stretch(column, piece));
}

}  // namespace remuda
