#include "pool/batches/padding.hpp"

#include <algorithm>
#include <cstring>

#include "pool/batches/lease_base.hpp"

namespace remuda {

namespace {

nb::object dtype_of(int type) { return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type))); }

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void copy_rows(const Column& from, const std::vector<Run>& runs, std::uint32_t rows, std::byte* to) {
  const std::byte* end = to + rows * from.row_bytes();
  for (const Run& run : runs) {
    const std::size_t bytes = run.count * from.row_bytes();
    std::memcpy(to, from.row(run.row), bytes);
    to += bytes;
  }
  std::memset(to, 0, static_cast<std::size_t>(end - to));
}

void write_ids(const std::vector<Run>& runs, std::uint32_t rows, std::byte* ids, std::byte* valid) {
  auto* id = reinterpret_cast<npy_int64*>(ids);
  npy_int64* const end = id + rows;
  for (const Run& run : runs)
    for (std::uint32_t i = 0; i < run.count; ++i) *id++ = run.slot + i;
  const std::size_t count = rows - static_cast<std::size_t>(end - id);
  std::fill(id, end, npy_int64{-1});
  std::memset(valid, NPY_TRUE, count);
  std::memset(valid + count, NPY_FALSE, rows - count);
}

std::uint64_t Padding::bytes_for(const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames) {
  const std::uint64_t all = std::uint64_t{rows} * frames;
  std::uint64_t bytes = sizeof(ArenaHeader) + aligned(sizeof(npy_int64) * all) + aligned(sizeof(npy_bool) * all);
  for (const auto* its : {&columns.columns, &columns.computed})
    for (const Column& column : *its) bytes += aligned(column.row_bytes() * all);
  return bytes;
}

Padding::Padding(Arena& like, const BatchColumns& columns, std::uint32_t rows, std::uint32_t frames)
    : rows_(rows), book_(std::make_shared<FrameBook>(frames)), columns_(std::make_shared<BatchColumns>()) {
  arena_ = like.another(bytes_for(columns, rows, frames));
  lendings_ = Lendings::make(arena_, rows, 0);
  std::uint64_t next = sizeof(ArenaHeader);
  auto add = [&](nb::object dtype, std::vector<npy_intp> shape, std::vector<Column>& to) {
    const Column& added = to.emplace_back(std::move(dtype), std::move(shape), arena_->at<std::byte>(next));
    lendings_->add_column(added.row(0), added.row_bytes());
    next += aligned(added.row_bytes() * std::uint64_t{rows} * frames);
  };
  auto add_all = [&](const std::vector<Column>& from, std::vector<Column>& to) {
    for (const Column& column : from) {
      add(nb::borrow(reinterpret_cast<PyObject*>(column.descr())), column.shape(), to);
      row_bytes_ += column.row_bytes();
    }
  };
  add_all(columns.columns, columns_->columns);
  add_all(columns.computed, columns_->computed);
  add(dtype_of(NPY_INT64), {}, ids_);
  add(dtype_of(NPY_BOOL), {}, valid_);
  columns_->obs_is_array = columns.obs_is_array;
  lendings_->add_book(book_, 0, rows);
}

Batch Padding::fill(const nb::object& source, const BatchColumns& from, const std::vector<Run>& runs, nb::object finals,
                    nb::object infos, nb::object extras) {
  const std::uint32_t frame = book_->take(), first = frame * rows_;
  nb::object lease = as_base(std::make_unique<FrameLease>(arena_, book_, frame));
  auto copy_all = [&](const std::vector<Column>& columns, const std::vector<Column>& to) {
    for (std::size_t i = 0; i < columns.size(); ++i) copy_rows(columns[i], runs, rows_, to[i].row(first));
  };
  auto copy = [&] {
    copy_all(from.columns, columns_->columns);
    copy_all(from.computed, columns_->computed);
  };
  without_gil_if(row_bytes_ * rows_ >= kWorthReleasing, copy);
  write_ids(runs, rows_, ids_[0].row(first), valid_[0].row(first));
  return {source,
          columns_,
          lease,
          first,
          {{}, std::move(finals), {}, std::move(infos)},
          std::move(extras),
          ids_[0].view(first, rows_, lease),
          valid_[0].view(first, rows_, lease)};
}

}  // namespace remuda
