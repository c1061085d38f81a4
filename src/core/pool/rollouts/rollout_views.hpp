// A rollout as Python has it: it makes arrays of its rows, which hold these as long as they are there, as it does.
#pragma once

#include <memory>
#include <vector>

#include "pool/batches/batch.hpp"
#include "pool/batches/lease_base.hpp"
#include "pool/rollouts/rollout.hpp"

namespace remuda {

class RolloutViews {
 public:
  // `first_action`: the row of the actions that the first row of rewards has.
  RolloutViews(std::shared_ptr<Rollout> rollout, std::shared_ptr<const BatchColumns> columns,
               std::vector<Column> actions, std::uint32_t first_action)
      : lease_(as_base(std::make_unique<RolloutLease>(rollout))),
        rollout_(std::move(rollout)),
        columns_(std::move(columns)),
        actions_(std::move(actions)),
        first_action_(first_action) {}

  nb::handle lease() const { return lease_; }  // the base of the arrays
  bool are_of(const std::shared_ptr<Rollout>& rollout) const { return rollout_ == rollout; }

  // Arrays of (rows, *shape), for each column, frame after frame; new ones each time.
  // Reward, flags, info mask, and the observation's leaves; its terminal ones; the caller's own; infos, as many as
  // there are by now.
  nb::list columns() const { return views(columns_->columns, rollout_->first_row()); }
  nb::list finals() const { return views(columns_->finals, rollout_->first_row()); }
  nb::list computed() const { return views(columns_->computed, rollout_->first_row()); }
  nb::list infos() const { return views(columns_->infos, rollout_->first_row()); }
  // The last frame of these is nobody's.
  nb::list actions() const { return views(actions_, first_action_); }
  // (rows,) uint8: which rows have been handed out with results.  A copy.
  nb::object is_filled() const;
  // (n,) uint32: the frame that what each env is sent next goes to: steps + 1 when it has been sent all,
  // steps + 2 when nothing more is to go there.  A copy.
  nb::object next_frames() const;
  // Whether that is this one, for so many from a column on.
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
