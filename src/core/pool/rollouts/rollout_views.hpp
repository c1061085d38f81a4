// Python's access to a rollout: makes arrays of its rows. The arrays and this object keep the memory of the rows.
#pragma once

#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/rollouts/rollout.hpp"
#include "python/arrays.hpp"

namespace remuda {

class RolloutViews {
 public:
  // `first_action`: the row in the action columns that corresponds to the rollout's first row in the other columns.
  RolloutViews(std::shared_ptr<Rollout> rollout, std::shared_ptr<const BatchColumns> columns,
               std::vector<Column> actions, std::uint32_t first_action)
      : lease_(as_base({rollout->arena(), rollout})),
        rollout_(std::move(rollout)),
        columns_(std::move(columns)),
        actions_(std::move(actions)),
        first_action_(first_action) {}

  nb::handle lease() const { return lease_; }  // the base of the arrays
  bool are_of(const std::shared_ptr<Rollout>& rollout) const { return rollout_ == rollout; }

  // Each of the next four functions returns a list of new arrays of shape (rows, *shape), one for each column, with the
  // rows frame after frame. `columns`: reward, flags, info mask, and the leaves of the observation. `finals`: the
  // leaves of terminal observations. `computed`: the columns that the user's functions compute. `infos`: the info
  // columns that exist so far.
  nb::list columns() const { return views(columns_->columns, rollout_->first_row()); }
  nb::list finals() const { return views(columns_->finals, rollout_->first_row()); }
  nb::list computed() const { return views(columns_->computed, rollout_->first_row()); }
  nb::list infos() const {
    const nb::ft_object_guard guard(columns_->info_reader);
    return views(columns_->infos, rollout_->first_row());
  }
  // Returns a list of new arrays (rows, *shape), one for each action column. The last frame has no actions.
  nb::list actions() const { return views(actions_, first_action_); }
  // Returns a new array, (rows,) uint8: for each row, whether its result has been handed out.
  nb::object is_filled() const { return vector_of<npy_uint8>(rollout_->is_filled(), NPY_UINT8); }
  // Returns a new array, (n,) uint32, with the next frame of each env: steps + 1 if the env has filled all its frames,
  // steps + 2 if it was stopped before.
  nb::object next_frames() const { return vector_of<npy_uint32>(rollout_->next_frames(), NPY_UINT32); }
  // Returns whether `frame` is the next frame of `count` envs of the rollout. `column`: the first env's number within
  // the rollout.
  bool is_next(std::uint32_t column, std::uint32_t count, std::uint32_t frame) const {
    if (column > rollout_->width() || count > rollout_->width() - column)
      throw std::out_of_range("a rollout has fewer columns");
    return rollout_->is_next(column, count, frame);
  }

 private:
  template <class Columns>
  nb::list views(const Columns& columns, std::uint32_t first) const {
    nb::list views;
    for (const Column& column : columns) views.append(column.view(first, rollout_->rows(), lease_));
    return views;
  }

  nb::object lease_;
  std::shared_ptr<Rollout> rollout_;
  std::shared_ptr<const BatchColumns> columns_;
  std::vector<Column> actions_;
  std::uint32_t first_action_;
};

}  // namespace remuda
