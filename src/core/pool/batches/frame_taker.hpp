// Makes batches of ready results: a view of a frame, with a lease, if possible; else a copy.
#pragma once

#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/lent_frames.hpp"
#include "pool/slots/part.hpp"
#include "shm/arena.hpp"

namespace remuda {

class FrameTaker {
 public:
  FrameTaker(std::shared_ptr<Arena> arena, std::shared_ptr<BatchColumns> columns)
      : arena_(std::move(arena)), columns_(std::move(columns)) {}

  void add_info_column(Column column) {
    const nb::ft_object_guard guard(columns_->info_reader);
    columns_->infos.push_back(std::move(column));
  }
  std::size_t num_info_columns() const { return columns_->infos.size(); }
  // Sets the object that all batches share, see `Batch::source`, and whether an observation is one array.
  void set_source(nb::object source, bool obs_is_array) {
    if (source.is_valid()) columns_->info_reader = source.attr("info_reader");  // batches need it after the pool's end
    columns_->obs_is_array = obs_is_array;
    source_ = std::move(source);
  }
  nb::object& source() { return source_; }

  // Makes a batch of these ready runs of a part, in this order. Lends their frame, or frees their rows after copying
  // them. If this throws, it has changed nothing. `env_ids`: the slots. `lent`: the part's lent frames. `rollout`: the
  // lease on the rollout that the part fills; null without one.
  Batch take(Part& part, const std::vector<Run>& runs, bool is_whole_frame, nb::object env_ids, nb::object extras,
             LentFrames& lent, nb::handle rollout) const;
  // The slots of the runs, as an array of int64.
  static nb::object slots_of(const std::vector<Run>& runs);

 private:
  Batch::Arrays copy(const std::vector<Run>& runs, bool finals, bool infos) const;
  bool has_infos(const std::vector<Run>& runs) const;

  std::shared_ptr<Arena> arena_;
  std::shared_ptr<BatchColumns> columns_;
  nb::object source_;
};

}  // namespace remuda
