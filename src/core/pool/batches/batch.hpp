// A batch: one result from each of some envs, with arrays that are made at the first access.
//
// Either the batch is a frame: its arrays are views, and the batch and the arrays hold the frame's lease. Or its rows
// were copied when it was made. Python's `Batch` is a subclass of this one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "pool/batches/lent_frames.hpp"
#include "shm/columns.hpp"
#include "shm/info_reader.hpp"

namespace remuda {

// The reader of info columns for batches with this source. It lives as long as the source.
InfoReader& info_reader_of(nb::handle source);

// The columns that the batches of a pool are made of.
struct BatchColumns {
  std::vector<Column> columns;        // reward, terminated, truncated, info mask, then the observation's leaves
  std::vector<Column> finals;         // the same leaves of the observation that ended an episode
  std::vector<Column> computed;       // the columns that the user's functions fill
  std::deque<Column> infos;           // grows
  bool obs_is_array = false;          // an observation is its only leaf
  InfoReader* info_reader = nullptr;  // belongs to the source

  static constexpr std::size_t kFirstOfLeaves = 4;
};

class Batch {
 public:
  // Lists of one array for each column; null if no row has a value in these columns.
  struct Arrays {
    nb::object columns, finals, computed, infos;
  };
  enum Attribute { kReward, kTerminated, kTruncated, kEnvIds, kObs, kAttributes };

  // A batch of the rows from `first` on, which `lease` keeps. `finals`, `infos`: whether any row has a value there.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
        nb::object env_ids, bool finals, bool infos, nb::object extras);
  // A batch of a lent frame; otherwise like the one above.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, std::shared_ptr<LentFrame> frame,
        std::uint32_t first, nb::object env_ids, bool finals, bool infos, nb::object extras)
      : Batch(std::move(source), std::move(columns), frame->lease(), first, std::move(env_ids), finals, infos,
              std::move(extras)) {
    frame_ = std::move(frame);
  }
  // A batch of arrays of its own, one for each column, in order. `obs_is_array`: whether an observation is its only
  // leaf.
  Batch(nb::object source, nb::object env_ids, Arrays arrays, nb::object extras, bool obs_is_array,
        nb::object valid = {});
  // A batch of the rows from `first` on in a frame of a `Padding`, which `lease` keeps. `arrays`: finals and infos of
  // its own.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
        Arrays arrays, nb::object extras, nb::object env_ids, nb::object valid);

  std::uint32_t count() const { return count_; }
  // The object that all batches of a pool share: Python's `Source`.
  nb::object source() const { return source_; }
  nb::object extras() const { return extras_; }
  bool has_infos() const { return has_infos_ || extras_.is_valid(); }
  nb::object valid() const { return valid_; }  // a mask of the rows that have an env; null: all have one

  // Returns the array, which is made at the first access. Returns null for an observation of several leaves, which
  // Python builds.
  nb::object get(Attribute attribute);
  void set(Attribute attribute, nb::object value) { attributes_[attribute] = std::move(value); }

  // Views of the frame, or the arrays of a copied batch.
  nb::object info_mask() const { return column(kInfoMaskOfBatch); }
  nb::list leaves() const;
  nb::object finals() const;    // a list, or None
  nb::object computed() const;  // a list, or None
  nb::object infos() const;     // a list, or None

  // A new array of bools: the rows that end an episode.
  nb::object done();
  // All infos: a list of dicts; one dict for all envs in Gymnasium's format. Both return null if the columns do not
  // have all infos.
  nb::object info_dicts() const;
  nb::object stacked_infos() const;

  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  static constexpr std::size_t kInfoMaskOfBatch = 3;

  nb::object column(std::size_t index) const;
  const npy_bool* flags(Attribute attribute);
  InfoReader& info_reader() const;
  bool columns_have_infos(const InfoReader& reader) const;
  bool has_terminal_arrays() const;
  InfoRows info_rows(const InfoReader& reader) const;
  nb::object terminal_observations() const;
  nb::object view(const Column& column) const { return column.view(first_, count_, lease_); }

  nb::object source_;
  std::shared_ptr<const BatchColumns> columns_;
  nb::object lease_;                  // null: the rows were copied into `arrays_`
  std::shared_ptr<LentFrame> frame_;  // the frame that `lease_` belongs to; null if it is not a frame's
  Arrays arrays_;                     // see `lease_`
  nb::object extras_, valid_;
  nb::object attributes_[kAttributes];  // those that were made or set
  std::uint32_t first_ = 0, count_ = 0;
  std::uint32_t info_columns_ = 0;  // the number of info columns when the batch was made
  bool has_finals_, has_infos_, obs_is_array_;
};

}  // namespace remuda
