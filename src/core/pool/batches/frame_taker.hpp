// Makes batches of results that are there: views of a leased frame where possible, else copies.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/lent_frames.hpp"
#include "pool/batches/padding.hpp"
#include "pool/slots/part.hpp"
#include "shm/arena.hpp"

namespace remuda {

class FrameTaker {
 public:
  // `columns`: reward, terminated, truncated, info mask, then the observation's leaves; `final_columns`: those leaves;
  // `computed`: the caller's own.  `frames`: the number of batches that can be held at a time before further ones have
  // memory of their own.
  FrameTaker(std::shared_ptr<Arena> arena, std::uint32_t frame_rows, std::uint32_t frames, std::vector<Column> columns,
             std::vector<Column> final_columns, std::vector<Column> computed);

  const std::shared_ptr<const BatchColumns> columns() const { return columns_; }
  void add_info_column(Column column) { columns_->infos.push_back(std::move(column)); }
  std::size_t num_info_columns() const { return columns_->infos.size(); }
  // What all batches know, see `Batch::source`; and whether an observation is its one leaf.
  void set_source(nb::object source, bool obs_is_array) {
    columns_->info_reader = source.is_valid() ? &info_reader_of(source) : nullptr;
    columns_->obs_is_array = obs_is_array;
    source_ = std::move(source);
  }
  nb::handle source() const { return source_; }

  // The rows of runs that were taken from a part, in this order; they are lent, or free again.  `env_ids`: the slots.
  // `lent`: the part's.  `rollout`: the lease of that which the part fills, if any.
  Batch take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids, nb::object extras,
             LentFrames& lent, nb::handle rollout) const;
  // The same as a batch of `rows` rows, which `make_padding` has made room for: those that are left are zeros.
  Batch take_padded(Part& part, const std::vector<Run>& runs, std::uint32_t rows, nb::object extras);
  // Throws std::system_error when there is no memory for it.
  void make_padding(std::uint32_t rows);
  // The bytes that `make_padding` would reserve; 0 if it was called for so many rows.
  std::uint64_t padding_bytes(std::uint32_t rows) const;
  // Their slots, as an array of int64.
  static nb::object slots_of(const std::vector<Run>& runs);

 private:
  std::shared_ptr<LentFrame> lend(const Part& part, std::uint32_t frame, LentFrames& lent) const;
  std::uint32_t first_row(const Part& part, std::uint32_t frame) const {
    return frame * frame_rows_ + part.first_position();
  }
  Batch::Arrays copy(const std::vector<Run>& runs, std::uint32_t rows, bool fixed, bool finals, bool infos) const;
  bool has_infos(const std::vector<Run>& runs) const;

  std::shared_ptr<Arena> arena_;
  std::uint32_t frame_rows_, frames_;
  std::shared_ptr<BatchColumns> columns_;
  std::map<std::uint32_t, Padding> paddings_;  // by rows
  nb::object source_;
};

}  // namespace remuda
