// Makes batches of results that are there: views of a leased frame where possible, else copies.
#pragma once

#include <memory>
#include <vector>

#include "pool/batch.hpp"
#include "pool/part.hpp"
#include "shm/arena.hpp"

namespace remuda {

class FrameTaker {
 public:
  // `columns`: reward, terminated, truncated, info mask, then the observation's leaves; `final_columns`: those leaves.
  FrameTaker(std::shared_ptr<Arena> arena, std::uint32_t frame_rows, std::vector<Column> columns,
             std::vector<Column> final_columns);

  void add_info_column(Column column) { columns_->infos.push_back(std::move(column)); }
  std::size_t num_info_columns() const { return columns_->infos.size(); }
  // What all batches know, see `Batch::source`; and whether an observation is its one leaf.
  void set_source(nb::object source, bool obs_is_array) {
    source_ = std::move(source);
    columns_->obs_is_array = obs_is_array;
  }
  nb::handle source() const { return source_; }

  // The rows of runs that were taken from a part, in this order; they are lent, or free again.  `env_ids`: the slots.
  Batch take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids,
             nb::object extras) const;
  // Their slots, as an array of int64.
  static nb::object slots_of(const std::vector<Run>& runs);

 private:
  nb::object lend(Part& part, std::uint32_t frame) const;
  Batch::Arrays copy(const std::vector<Run>& runs, bool finals, bool infos) const;
  bool has_infos(const std::vector<Run>& runs) const;

  std::shared_ptr<Arena> arena_;
  std::uint32_t frame_rows_;
  std::shared_ptr<BatchColumns> columns_;
  nb::object source_;
};

}  // namespace remuda
