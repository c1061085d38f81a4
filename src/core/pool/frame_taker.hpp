// Makes batches of results that are there: views of a leased frame where possible, else copies.
#pragma once

#include <memory>
#include <vector>

#include "pool/part.hpp"
#include "shm/arena.hpp"
#include "shm/columns.hpp"

namespace remuda {

class FrameTaker {
 public:
  struct Batch {  // lists of an array for each column; null where no row has anything in them
    nb::object columns, finals, infos;
  };

  // `columns`: reward, terminated, truncated, info mask, then the observation's leaves; `final_columns`: those leaves.
  FrameTaker(std::shared_ptr<Arena> arena, std::uint32_t frame_rows, std::vector<Column> columns,
             std::vector<Column> final_columns);

  void add_info_column(Column column) { info_columns_.push_back(std::move(column)); }
  std::size_t num_info_columns() const { return info_columns_.size(); }

  // The rows of runs that were taken from a part, in this order; they are lent, or free again.
  Batch take(Part& part, const std::vector<Run>& runs, bool is_whole_frame) const;
  // Their slots, as an array of int64.
  static nb::object slots_of(const std::vector<Run>& runs);

 private:
  template <class MakeArray>
  Batch make(const std::vector<Run>& runs, MakeArray make_array) const;
  Batch lend(Part& part, const std::vector<Run>& runs) const;
  Batch copy(Part& part, const std::vector<Run>& runs) const;
  bool has_infos(const std::vector<Run>& runs) const;

  std::shared_ptr<Arena> arena_;
  std::uint32_t frame_rows_;
  std::vector<Column> columns_, final_columns_, info_columns_;
};

}  // namespace remuda
