// Memory for batches of a fixed number of rows: as many batches as the pool has frames, and used again.
//
// The rows that are there are copied to its first rows, the rest of them are zeros.  As with the pool's frames, a batch
// holds a lease, and nobody writes where somebody may still look.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/frames.hpp"
#include "pool/batches/lendings.hpp"
#include "pool/slots/part.hpp"

namespace remuda {

constexpr std::size_t kWorthReleasing = 1 << 16;  // bytes to copy that are worth releasing the GIL for

template <class Copy>
void without_gil_if(bool is_worth_it, Copy copy) {
  if (!is_worth_it) return copy();
  nb::gil_scoped_release release;
  copy();
}

// Copies the rows of runs to `to`, and fills it up to `rows` of them with zeros.
void copy_rows(const Column& from, const std::vector<Run>& runs, std::uint32_t rows, std::byte* to);
// Writes which slots these are, then -1; and which of the rows are slots.
void write_ids(const std::vector<Run>& runs, std::uint32_t rows, std::byte* ids, std::byte* valid);

class Padding {
 public:
  // Of batches with such columns.  `like`: the pool's arena; this one ends in the same way.  Throws std::system_error
  // when there is no memory for it.
  Padding(Arena& like, const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames);

  static std::uint64_t bytes_for(const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames);

  const Column& ids() const { return ids_[0]; }
  const Column& valid() const { return valid_[0]; }
  bool any_free() const { return book_->any_free(); }
  // The rows of the runs, their slots, and which rows are those, from columns of a pool; see `Batch`.
  Batch fill(const nb::object& source, const BatchColumns& from, const std::vector<Run>& runs, nb::object finals,
             nb::object infos, nb::object extras);

 private:
  std::shared_ptr<Arena> arena_;
  std::uint32_t rows_;
  std::size_t row_bytes_ = 0;
  std::shared_ptr<FrameBook> book_;
  std::shared_ptr<BatchColumns> columns_;
  std::vector<Column> ids_, valid_;  // one each
  std::shared_ptr<Lendings> lendings_;
};

}  // namespace remuda
