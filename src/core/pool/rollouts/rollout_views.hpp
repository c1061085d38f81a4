// Python's access to a rollout: makes arrays of its rows. The arrays and this object keep the rows.
#pragma once

#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/lease_base.hpp"
#include "pool/rollouts/rollout.hpp"

namespace remuda {

class RolloutViews {
 public:
  // `first_action`: the row of the actions that belongs to the first row of rewards.
  RolloutViews(std::shared_ptr<Rollout> rollout, std::shared_ptr<const BatchColumns> columns,
               std::vector<Column> actions, std::uint32_t first_action)
      : lease_(as_base(std::make_unique<RolloutLease>(rollout))),
        rollout_(std::move(rollout)),
        columns_(std::move(columns)),
        actions_(std::move(actions)),
        first_action_(first_action) {}

  nb::handle lease() const { return lease_; }  // the base of the arrays
  bool are_of(const std::shared_ptr<Rollout>& rollout) const { return rollout_ == rollout; }

  // Arrays of shape (rows, *shape), one for each column, frame after frame. Each call makes new ones. `columns`:
  // reward, flags, info mask, and the leaves of the observation. `finals`: the leaves of terminal observations.
  // `computed`: the columns that the user's functions fill. `infos`: the info columns that exist by now.
  nb::list columns() const { return views(columns_->columns, rollout_->first_row()); }
  nb::list finals() const { return views(columns_->finals, rollout_->first_row()); }
  nb::list computed() const { return views(columns_->computed, rollout_->first_row()); }
  nb::list infos() const { return views(columns_->infos, rollout_->first_row()); }
  // The actions; their last frame is unused.
  nb::list actions() const { return views(actions_, first_action_); }
  // (rows,) uint8: whether the result of a row has been handed out. A copy.
  nb::object is_filled() const;
  // (n,) uint32: the next frame of each env: steps + 1 if its frames are all used, steps + 2 if it was closed. A copy.
  nb::object next_frames() const;
  // Returns whether `frame` is the next frame of `count` envs from `column` on.
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
