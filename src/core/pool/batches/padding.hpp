// Memory for padded batches, which all have the same number of rows. It has as many frames as the pool, and reuses
// them.
//
// The rows of the results are copied to the first rows of a frame, and the other rows are zeros. A batch holds a lease
// on its frame, so a frame is not written again before the lease has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/frames.hpp"
#include "pool/batches/lendings.hpp"
#include "pool/slots/part.hpp"

namespace remuda {

constexpr std::size_t kWorthReleasing = 1 << 16;  // the least number of bytes for which copying releases the GIL

template <class Copy>
void without_gil_if(bool is_worth_it, Copy copy) {
  if (!is_worth_it) return copy();
  nb::gil_scoped_release release;
  copy();
}

// Copies the rows of the runs to `to`, and fills the rest up to `rows` rows with zeros.
void copy_rows(const Column& from, const std::vector<Run>& runs, std::uint32_t rows, std::byte* to);
// Writes the slots of the runs to `ids`, then -1 for each further row. Writes to `valid` whether each row has a slot.
void write_ids(const std::vector<Run>& runs, std::uint32_t rows, std::byte* ids, std::byte* valid);

class Padding {
 public:
  // Reserves frames for batches with these columns. `like`: the pool's arena; the arena of the frames has the same
  // deleter. Throws std::system_error if memory runs out.
  Padding(Arena& like, const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames);

  static std::uint64_t bytes_for(const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames);

  const Column& ids() const { return ids_[0]; }
  const Column& valid() const { return valid_[0]; }
  bool any_free() const { return book_->any_free(); }
  // Makes a batch of the rows of the runs, which it copies from the pool's columns `from`. The other arguments are
  // those of `Batch`.
  Batch fill(const nb::object& source, const BatchColumns& from, const std::vector<Run>& runs, nb::object finals,
             nb::object infos, nb::object extras);

 private:
  std::shared_ptr<Arena> arena_;
  std::uint32_t rows_;
  std::size_t row_bytes_ = 0;
  std::shared_ptr<FrameBook> book_;
  std::shared_ptr<BatchColumns> columns_;
  std::vector<Column> ids_, valid_;  // The env ids, and whether a row is valid. Each has one column.
  std::shared_ptr<Lendings> lendings_;
};

}  // namespace remuda
