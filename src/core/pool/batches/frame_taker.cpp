#include "pool/batches/frame_taker.hpp"

#include <algorithm>
#include <cstring>

#include "shm/plan.hpp"

namespace remuda {

namespace {

constexpr std::size_t kWorthReleasing = 1 << 16;  // the least number of bytes for which copying releases the GIL

std::uint32_t count_of(const std::vector<Run>& runs) {
  std::uint32_t count = 0;
  for (const Run& run : runs) count += run.count;
  return count;
}

void copy_rows(const Column& column, const std::vector<Run>& runs, std::byte* to) {
  for (const Run& run : runs) {
    const std::size_t bytes = run.count * column.row_bytes();
    std::memcpy(to, column.row(run.row), bytes);
    to += bytes;
  }
}

// Copies the rows of one column into a new array, in the order of `runs`.
nb::object gather(const Column& column, const std::vector<Run>& runs) {
  const std::uint32_t rows = count_of(runs);
  nb::object array = column.array(rows);
  auto* const to = data_of<std::byte>(array);
  if (column.row_bytes() * rows < kWorthReleasing) {
    copy_rows(column, runs, to);
  } else {
    nb::gil_scoped_release release;
    copy_rows(column, runs, to);
  }
  return array;
}

}  // namespace

Batch FrameTaker::take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids,
                       nb::object extras, LentFrames& lent, nb::handle rollout) const {
  const bool finals = any_has(kHasFinal, runs), infos = has_infos(runs);
  const std::uint32_t first = runs.empty() ? 0 : runs[0].row;
  const auto view = [&](nb::object lease, std::shared_ptr<LentFrame> frame) {
    return Batch(source_, columns_, std::move(lease), std::move(frame), first, std::move(env_ids), finals, infos,
                 std::move(extras));
  };
  if (is_whole_frame && part.is_in_rollout(first)) {
    for (const Run& run : runs) part.free_rows(run.row, run.count);
    return view(nb::borrow(rollout), nullptr);
  }
  if (is_whole_frame && part.may_lend(first)) {
    const auto rows = static_cast<std::uint32_t>(part.slots().size());
    LentFrames::Frame frame = lent.lend(arena_, part.book(), part.number_in_book(first), first, rows);
    part.lend(first);
    nb::object lease = frame->lease();
    return view(std::move(lease), std::move(frame));
  }
  Batch::Arrays arrays = copy(runs, finals, infos);
  for (const Run& run : runs) part.free_rows(run.row, run.count);
  return {source_, std::move(env_ids), std::move(arrays), std::move(extras), columns_->obs_is_array};
}

// Copies the rows of the runs into new arrays. `finals`, `infos`: whether to copy terminal observations and info
// columns.
Batch::Arrays FrameTaker::copy(const std::vector<Run>& runs, bool finals, bool infos) const {
  auto gathered = [&](const auto& columns) {
    nb::list arrays;
    for (const Column& column : columns) arrays.append(gather(column, runs));
    return arrays;
  };
  Batch::Arrays arrays;
  arrays.columns = gathered(columns_->columns);
  if (finals) arrays.finals = gathered(columns_->finals);
  if (!columns_->computed.empty()) arrays.computed = gathered(columns_->computed);
  if (infos) arrays.infos = gathered(columns_->infos);
  return arrays;
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
