#include "pool/rollouts/rollout_store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace remuda {

HeldRows RolloutStore::take(std::uint32_t rows) {
  merge_free();
  pieces_.reserve(pieces_.size() + 1);  // first, so that a later lack of memory changes nothing
  if (const auto fitting = find_free(rows); fitting != pieces_.end()) {
    const Piece rest{fitting->first + rows, fitting->rows - rows, nullptr};
    HeldRows held = fitting->hold();
    fitting->rows = rows;
    if (rest.rows != 0) pieces_.insert(fitting + 1, rest);
    return held;
  }
  drop_free();
  Piece piece{find_gap(rows), rows, nullptr};
  HeldRows held = piece.hold();
  try {
    reserve(piece);
  } catch (...) {
    release(piece);
    throw;
  }
  const auto behind =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& other) { return other.first > piece.first; });
  pieces_.insert(behind, std::move(piece));
  return held;
}

std::uint64_t RolloutStore::bytes_to_reserve(std::uint32_t rows) {
  merge_free();
  return find_free(rows) == pieces_.end() ? rows * bytes_of_row() : 0;
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

// Returns the smallest free piece that has enough rows.
RolloutStore::Pieces::iterator RolloutStore::find_free(std::uint32_t rows) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece)
    if (piece->is_free() && piece->rows >= rows && (best == pieces_.end() || piece->rows < best->rows)) best = piece;
  return best;
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

// Releases the memory of the free pieces. Checks each piece only once, because another thread may free it in the
// meantime.
void RolloutStore::drop_free() {
  std::erase_if(pieces_, [this](const Piece& piece) {
    if (!piece.is_free()) return false;
    release(piece);
    return true;
  });
}

// Merges neighbouring free pieces.
void RolloutStore::merge_free() {
  for (std::size_t i = 1; i < pieces_.size();) {
    Piece &before = pieces_[i - 1], &piece = pieces_[i];
    if (!before.is_free() || !piece.is_free() || before.first + before.rows != piece.first) {
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
  for (const Rows& column : columns_) arena_->reserve(range_of(column, piece));
}

void RolloutStore::release(const Piece& piece) const {
  for (const Rows& column : columns_) arena_->release(range_of(column, piece));
}

}  // namespace remuda
