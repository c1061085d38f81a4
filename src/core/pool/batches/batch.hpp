// A batch: one result from each of some envs. Its arrays are made when they are first accessed.
//
// A batch is a view of a frame, or a copy. In a view, the batch and its arrays hold the frame's lease. For a copy, the
// rows were copied when the batch was made. Python's `Batch` is a subclass of this one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "pool/batches/lent_frames.hpp"
#include "shm/columns.hpp"
#include "shm/info_reader.hpp"
#include "shm/plan.hpp"

namespace remuda {

// The columns from which the batches of a pool are made.
struct BatchColumns {
  std::vector<Column> columns;   // Reward, terminated, truncated, info mask, then the observation's leaves.
  std::vector<Column> finals;    // The leaves of terminal observations.
  std::vector<Column> computed;  // The columns that the user's functions compute.
  std::deque<Column> infos;      // Columns of infos, added while the pool runs.
  bool obs_is_array = false;     // Whether an observation is one array, and not several leaves.
  nb::object info_reader;        // The reader of `infos`. The lock of this object protects `infos`, too.
};

class Batch {
 public:
  // The arrays of copied rows: each member is a list with one array for each column, or null if no row has a value in
  // these columns.
  struct Arrays {
    nb::object columns, finals, computed, infos;
  };
  enum Attribute { kReward, kTerminated, kTruncated, kEnvIds, kObs, kAttributes };

  // Makes a batch of the rows from `first` on. `lease` keeps the memory of these rows. `frame`: the lent frame of this
  // lease, or null. `finals`, `infos`: whether any row has a terminal observation, or an info, in the columns.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease,
        std::shared_ptr<LentFrame> frame, std::uint32_t first, nb::object env_ids, bool finals, bool infos,
        nb::object extras);
  // Makes a batch of copied rows: `arrays` has an array for each column, in order. `obs_is_array`: whether an
  // observation is one array.
  Batch(nb::object source, nb::object env_ids, Arrays arrays, nb::object extras, bool obs_is_array);

  std::uint32_t count() const { return count_; }
  // The object that all batches of a pool share: an instance of Python's `Source`.
  nb::object source() const { return source_; }
  nb::object extras() const { return extras_; }
  bool has_infos() const { return has_infos_ || extras_.is_valid(); }

  // Returns an array, and makes it at the first call. Returns null for an observation of several leaves, which Python
  // builds.
  nb::object get(Attribute attribute);
  void set(Attribute attribute, nb::object value) { attributes_[attribute] = std::move(value); }

  // The next functions return views of the frame, or the arrays of a copied batch. `finals`, `computed` and `infos`
  // return a list, or None if the batch has no such values.
  nb::object info_mask() const { return column(kInfoMask); }
  nb::list leaves() const;
  nb::object finals() const;
  nb::object computed() const;
  nb::object infos() const;

  // Returns a new array of bools that is true for the rows that end an episode.
  nb::object done();
  // Returns a copy of the rewards.
  nb::object copy_rewards();
  // `info_dicts` returns all infos as a list of dicts, `stacked_infos` as one dict in Gymnasium's vector format. Both
  // return null if some infos are not in the columns.
  nb::object info_dicts() const;
  nb::object stacked_infos() const;

  // See `Collected`. The lease cannot refer back to the batch.
  template <class Act>
  void each_reference(Act act) {
    for (nb::object* one : {&source_, &arrays_.columns, &arrays_.finals, &arrays_.computed, &arrays_.infos, &extras_})
      act(*one);
    for (nb::object& one : attributes_) act(one);
  }

 private:
  nb::object column(std::size_t index) const;
  const npy_bool* flags(Attribute attribute);
  bool columns_have_infos(const InfoReader& reader) const;
  InfoRows info_rows(const InfoReader& reader) const;
  nb::object terminal_observations() const;
  template <class Read>
  nb::object from_columns(Read read) const;
  nb::object view(const Column& column) const { return column.view(first_, count_, lease_); }

  nb::object source_;
  std::shared_ptr<const BatchColumns> columns_;
  nb::object lease_;                  // Null if the rows were copied to `arrays_`.
  std::shared_ptr<LentFrame> frame_;  // The lent frame of `lease_`, or null.
  Arrays arrays_;                     // The copied rows.
  nb::object extras_;
  nb::object attributes_[kAttributes];  // the arrays that were made, or set by the caller
  std::uint32_t first_ = 0, count_ = 0;
  std::uint32_t info_columns_ = 0;  // the number of info columns when the batch was made
  bool has_finals_, has_infos_, obs_is_array_;
};

}  // namespace remuda
