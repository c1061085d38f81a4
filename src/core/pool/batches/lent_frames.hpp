// Lent frames and their arrays. A frame has the same array objects each time that it is lent.
//
// Making and freeing new arrays took a third of the caller's time for a step. A frame counts as held while an object
// other than this class refers to one of its arrays, or to its lease, which is the base of views of views. No callback
// reports when that ends: the pool checks the reference counts when it needs frames.
//
// Without the GIL the pool cannot count the references of other threads. It then drops its own references to such a
// frame, and the end of the lease returns the frame.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pool/batches/frames.hpp"
#include "python/arrays.hpp"
#include "shm/columns.hpp"

namespace remuda {

// Returns a lease in the form of a base object for arrays.
//
// It is a capsule and not a class of the binding, because an array may outlive the interpreter. (NumPy does not release
// what it exports by DLPack once the interpreter ends, because it checks `Py_IsInitialized` first.) A capsule does not
// keep types and functions of the binding alive.
nb::object as_base(Lease lease);

// Returns the arena that holds the memory of an array, also through views of views; null if the memory is not a pool's.
std::shared_ptr<Arena> arena_of(nb::handle array);

// One frame and its arrays. Batches share it, and may outlive the pool.
class LentFrame {
 public:
  // `frame`: the number of the frame in `book`. `first_row`, `rows`: the rows of the arrays.
  LentFrame(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame, std::uint32_t first_row,
            std::uint32_t rows);

  const nb::object& lease() const { return base_; }

  // Returns a view of the frame's rows in this column. It is the same array as before, unless a holder has changed its
  // shape, dtype or flags.
  nb::object view(const std::vector<Column>& columns, std::size_t column);

  void lend() { held_->begin(); }
  void take_back() { held_->end(); }
  // Returns whether another object holds the frame, or nullopt if this thread cannot count the references.
  std::optional<bool> is_held() const;
  bool is_weakly_referenced() const;

 private:
  nb::object base_;
  HeldFrame* held_;  // owned by the lease in `base_`
  std::uint32_t first_row_, rows_;
  std::vector<MadeArray> views_;  // One array for each column.
  std::uint32_t made_ = 0;        // The number of arrays in `views_`.
  mutable nb::ft_mutex mutex_;    // Guards `views_` and `made_`, because any thread may read a batch.
};

// All lent frames of a part.
class LentFrames {
 public:
  using Frame = std::shared_ptr<LentFrame>;

  // Lends the frame with this number in `book`. For the other arguments see `LentFrame`.
  const Frame& lend(const std::shared_ptr<Arena>& arena, const std::shared_ptr<FrameBook>& book, std::uint32_t number,
                    std::uint32_t first_row, std::uint32_t rows) {
    if (frames_.size() <= number) frames_.resize(number + 1);
    Frame& frame = frames_[number];
    if (frame == nullptr) frame = std::make_shared<LentFrame>(arena, book, number, first_row, rows);
    frame->lend();
    lent_ |= std::uint64_t{1} << number;
    return frame;
  }

  // Returns each lent frame to its FrameBook if it is no longer held. If the arrays of a frame have weak references or
  // unknown holders, drops the pool's references to these arrays, which may run user code.
  void take_back();

 private:
  std::vector<Frame> frames_;  // Indexed by the number of the frame; null if it was never lent.
  std::uint64_t lent_ = 0;     // A bit for each frame that is lent now.
};

}  // namespace remuda
