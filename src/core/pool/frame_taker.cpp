#include "pool/frame_taker.hpp"

#include <algorithm>
#include <cstring>

#include "shm/plan.hpp"

namespace remuda {

namespace {

constexpr std::size_t kWorthReleasing = 1 << 16;  // bytes to copy that are worth releasing the GIL for

// Copies the rows of one column, in the order given, into a new array.
nb::object gather(const Column& column, const std::vector<std::uint32_t>& rows) {
  nb::object array = column.empty(static_cast<std::uint32_t>(rows.size()));
  auto* to = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
  auto copy = [&] {
    for (std::uint32_t row : rows) {
      std::memcpy(to, column.row(row), column.row_bytes());
      to += column.row_bytes();
    }
  };
  if (column.row_bytes() * rows.size() < kWorthReleasing) {
    copy();
  } else {
    nb::gil_scoped_release release;
    copy();
  }
  return array;
}

bool has_finals(const std::vector<Run>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return (run.flags & kHasFinal) != 0; });
}

}  // namespace

FrameTaker::FrameTaker(std::shared_ptr<Arena> arena, std::uint32_t frame_rows, std::vector<Column> columns,
                       std::vector<Column> final_columns)
    : arena_(std::move(arena)),
      frame_rows_(frame_rows),
      columns_(std::make_shared<BatchColumns>(BatchColumns{std::move(columns), std::move(final_columns), {}})) {}

Batch FrameTaker::take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids,
                       nb::object extras) const {
  const bool finals = has_finals(runs), infos = has_infos(runs);
  // The last free frame is never given away: without it the next command to all would have no row.
  if (is_whole_frame && part.book()->any_free()) {
    const std::uint32_t frame = part.lend(runs[0].row);
    return {source_, columns_, lend(part, frame), frame * frame_rows_ + part.first_position(), std::move(env_ids),
            finals,  infos,    std::move(extras)};
  }
  Batch::Arrays arrays = copy(runs, finals, infos);
  for (const Run& run : runs) part.free_rows(run.row, run.count);
  return {source_, std::move(env_ids), std::move(arrays), std::move(extras), columns_->obs_is_array};
}

nb::object FrameTaker::lend(Part& part, std::uint32_t frame) const {
  nb::object lease = nb::inst_alloc(nb::type<Lease>());
  new (nb::inst_ptr<Lease>(lease)) Lease(arena_, part.book(), frame - 1);
  nb::inst_mark_ready(lease);
  return lease;
}

Batch::Arrays FrameTaker::copy(const std::vector<Run>& runs, bool finals, bool infos) const {
  std::vector<std::uint32_t> rows;
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; ++i) rows.push_back(run.row + i);
  auto gathered = [&](const auto& columns) {
    nb::list arrays;
    for (const Column& column : columns) arrays.append(gather(column, rows));
    return arrays;
  };
  Batch::Arrays arrays;
  arrays.columns = gathered(columns_->columns);
  if (finals) arrays.finals = gathered(columns_->finals);
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
  npy_intp count = 0;
  for (const Run& run : runs) count += run.count;
  nb::object slots = nb::steal(PyArray_SimpleNew(1, &count, NPY_INT64));
  if (!slots.is_valid()) nb::raise_python_error();
  auto* ids = static_cast<npy_int64*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(slots.ptr())));
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; ++i) *ids++ = run.slot + i;
  return slots;
}

}  // namespace remuda
