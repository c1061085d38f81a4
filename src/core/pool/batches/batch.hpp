// A batch: one result from each of some envs, whose arrays are made when somebody asks for them.
//
// Either it is a frame, and its arrays are views that hold the frame's lease, as the batch does itself; or its rows
// were copied when it was made.  Python's `Batch` is a subclass of it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "pool/batches/lent_frames.hpp"
#include "shm/columns.hpp"
#include "shm/info_reader.hpp"

namespace remuda {

// Which reader of info columns batches with this source have; it lives as long as that.
InfoReader& info_reader_of(nb::handle source);

// What the batches of a pool are made of.
struct BatchColumns {
  std::vector<Column> columns;        // reward, terminated, truncated, info mask, then the observation's leaves
  std::vector<Column> finals;         // those leaves of the observation that ended an episode
  std::vector<Column> computed;       // the caller's own
  std::deque<Column> infos;           // grows
  bool obs_is_array = false;          // an observation is its one leaf
  InfoReader* info_reader = nullptr;  // the source's

  static constexpr std::size_t kFirstOfLeaves = 4;
};

class Batch {
 public:
  // Lists of an array for each column; null where no row has anything in them.
  struct Arrays {
    nb::object columns, finals, computed, infos;
  };
  enum Attribute { kReward, kTerminated, kTruncated, kEnvIds, kObs, kAttributes };

  // Rows from `first` on, which are the lease's. `finals`, `infos`: whether any row has something there.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
        nb::object env_ids, bool finals, bool infos, nb::object extras);
  // The same of a frame.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, std::shared_ptr<LentFrame> frame,
        std::uint32_t first, nb::object env_ids, bool finals, bool infos, nb::object extras)
      : Batch(std::move(source), std::move(columns), frame->lease(), first, std::move(env_ids), finals, infos,
              std::move(extras)) {
    frame_ = std::move(frame);
  }
  // Of arrays of its own, for all columns in their order. `obs_is_array`: an observation is its one leaf.
  Batch(nb::object source, nb::object env_ids, Arrays arrays, nb::object extras, bool obs_is_array,
        nb::object valid = {});
  // The rows of a padding's frame from `first` on, which are the lease's; `arrays`: finals and infos of its own.
  Batch(nb::object source, std::shared_ptr<const BatchColumns> columns, nb::object lease, std::uint32_t first,
        Arrays arrays, nb::object extras, nb::object env_ids, nb::object valid);

  std::uint32_t count() const { return count_; }
  // What all batches of a pool have in common: Python's `Source`.
  nb::object source() const { return source_; }
  nb::object extras() const { return extras_; }
  bool has_infos() const { return has_infos_ || extras_.is_valid(); }
  nb::object valid() const { return valid_; }  // which rows are an env's; null: all

  // Made the first time.  An observation that is no single array is not made here: null.
  nb::object get(Attribute attribute);
  void set(Attribute attribute, nb::object value) { attributes_[attribute] = std::move(value); }

  // Views, or the arrays of a batch that was copied.
  nb::object info_mask() const { return column(kInfoMaskOfBatch); }
  nb::list leaves() const;
  nb::object finals() const;    // a list, or None
  nb::object computed() const;  // a list, or None
  nb::object infos() const;     // a list, or None

  // A new array: where an episode has ended.
  nb::object done();
  // All infos: a list of dicts, or one for all in Gymnasium's format.  Null where columns do not have all of it.
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
  nb::object lease_;                  // null: the rows were copied
  std::shared_ptr<LentFrame> frame_;  // whose lease it is; null: it is none of a frame
  Arrays arrays_;                     // ... into these
  nb::object extras_, valid_;
  nb::object attributes_[kAttributes];  // that were made, or set
  std::uint32_t first_ = 0, count_ = 0;
  std::uint32_t info_columns_ = 0;  // how many there were
  bool has_finals_, has_infos_, obs_is_array_;
};

}  // namespace remuda
