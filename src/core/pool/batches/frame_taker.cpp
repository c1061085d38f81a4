#include "pool/batches/frame_taker.hpp"

#include <algorithm>

#include "shm/plan.hpp"

namespace remuda {

namespace {

std::byte* data_of(nb::handle array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

// Copies the rows of one column into a new array of `rows` rows, in the order of `runs`. The remaining rows are zeros.
nb::object gather(const Column& column, const std::vector<Run>& runs, std::uint32_t rows) {
  nb::object array = column.empty(rows);
  std::byte* const to = data_of(array);
  without_gil_if(column.row_bytes() * rows >= kWorthReleasing, [&] { copy_rows(column, runs, rows, to); });
  return array;
}

std::uint32_t count_of(const std::vector<Run>& runs) {
  std::uint32_t count = 0;
  for (const Run& run : runs) count += run.count;
  return count;
}

bool has_finals(const std::vector<Run>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return (run.flags & kHasFinal) != 0; });
}

}  // namespace

FrameTaker::FrameTaker(std::shared_ptr<Arena> arena, std::uint32_t frame_rows, std::uint32_t frames,
                       std::vector<Column> columns, std::vector<Column> final_columns, std::vector<Column> computed)
    : arena_(std::move(arena)),
      frame_rows_(frame_rows),
      frames_(frames),
      columns_(std::make_shared<BatchColumns>(
          BatchColumns{std::move(columns), std::move(final_columns), std::move(computed), {}})) {}

Batch FrameTaker::take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids,
                       nb::object extras, LentFrames& lent, nb::handle rollout) const {
  const bool finals = has_finals(runs), infos = has_infos(runs);
  if (is_whole_frame && part.is_in_rollout(runs[0].row)) {
    for (const Run& run : runs) part.free_rows(run.row, run.count);
    return {source_, columns_, nb::borrow(rollout), runs[0].row, std::move(env_ids), finals, infos, std::move(extras)};
  }
  if (is_whole_frame && part.may_lend(runs[0].row)) {
    const std::uint32_t frame = part.lend(runs[0].row);
    return {source_, columns_, lend(part, frame, lent), first_row(part, frame), std::move(env_ids),
            finals,  infos,    std::move(extras)};
  }
  Batch::Arrays arrays = copy(runs, count_of(runs), true, finals, infos);
  for (const Run& run : runs) part.free_rows(run.row, run.count);
  return {source_, std::move(env_ids), std::move(arrays), std::move(extras), columns_->obs_is_array};
}

std::shared_ptr<LentFrame> FrameTaker::lend(const Part& part, std::uint32_t frame, LentFrames& lent) const {
  return lent.lend(frame - 1, [&] {
    const auto rows = static_cast<std::uint32_t>(part.slots().size());
    return std::make_shared<LentFrame>(arena_, part.book(), frame - 1, first_row(part, frame), rows);
  });
}

// Copies the rows of the runs into new arrays of `rows` rows. `fixed`: whether to copy the columns that every batch
// has. `finals`, `infos`: whether to copy terminal observations and info columns.
Batch::Arrays FrameTaker::copy(const std::vector<Run>& runs, std::uint32_t rows, bool fixed, bool finals,
                               bool infos) const {
  auto gathered = [&](const auto& columns) {
    nb::list arrays;
    for (const Column& column : columns) arrays.append(gather(column, runs, rows));
    return arrays;
  };
  Batch::Arrays arrays;
  if (fixed) arrays.columns = gathered(columns_->columns);
  if (finals) arrays.finals = gathered(columns_->finals);
  if (fixed && !columns_->computed.empty()) arrays.computed = gathered(columns_->computed);
  if (infos) arrays.infos = gathered(columns_->infos);
  return arrays;
}

void FrameTaker::make_padding(std::uint32_t rows) {
  if (!paddings_.contains(rows)) paddings_.try_emplace(rows, *arena_, *columns_, rows, frames_);
}

std::uint64_t FrameTaker::padding_bytes(std::uint32_t rows) const {
  return paddings_.contains(rows) ? 0 : Padding::bytes_for(*columns_, rows, frames_);
}

Batch FrameTaker::take_padded(Part& part, const std::vector<Run>& runs, std::uint32_t rows, nb::object extras) {
  Padding& padding = paddings_.at(rows);
  const bool is_free = padding.any_free();
  Batch::Arrays arrays = copy(runs, rows, !is_free, has_finals(runs), has_infos(runs));
  nb::object ids, valid;
  if (!is_free) {
    ids = padding.ids().empty(rows), valid = padding.valid().empty(rows);
    write_ids(runs, rows, data_of(ids), data_of(valid));
  }
  Batch batch = is_free ? padding.fill(source_, *columns_, runs, arrays.finals, arrays.infos, std::move(extras))
                        : Batch(source_, ids, arrays, std::move(extras), columns_->obs_is_array, valid);
  for (const Run& run : runs) part.free_rows(run.row, run.count);
  return batch;
}

bool FrameTaker::has_infos(const std::vector<Run>& runs) const {
  if (columns_->infos.empty()) return false;
  const auto* mask = reinterpret_cast<const std::uint64_t*>(columns_->columns[kInfoMask].row(0));
  return std::any_of(runs.begin(), runs.end(), [mask](const Run& run) {
    const auto* first = mask + run.row;
    return std::any_of(first, first + run.count, [](std::uint64_t m) { return m != 0; });
  });
}

nb::object FrameTaker::slots_of(const std::vector<Run>& runs) {
  nb::object slots = new_vector(count_of(runs), NPY_INT64);
  auto* ids = data_of<npy_int64>(slots);
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; ++i) *ids++ = run.slot + i;
  return slots;
}

}  // namespace remuda
