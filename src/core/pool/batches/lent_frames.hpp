// Lent frames and their arrays, which are the same objects each time that a frame is lent.
//
// Making and freeing the arrays of a frame was a third of what a step cost the caller. Therefore the arrays are kept. A
// frame counts as lent while an object other than this class references one of its arrays, or its lease, which is the
// base of views of views. No callback reports the end of that: the pool checks the reference counts when it needs
// frames.
//
// All functions need the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/frames.hpp"
#include "python/made_array.hpp"
#include "shm/columns.hpp"

namespace remuda {

// One lent frame. Batches share it, and may outlive the pool.
class LentFrame {
 public:
  // `frame`: the frame of the book, lent from now on. `first_row`, `rows`: the rows of its arrays.
  LentFrame(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame, std::uint32_t first_row,
            std::uint32_t rows);

  const nb::object& lease() const { return base_; }

  // A view of the rows in this column. Returns the same array as before unless its shape, dtype or flags were changed.
  nb::object view(const std::vector<Column>& columns, std::size_t column);

  void lend() { lease_->begin(); }
  void take_back() { lease_->end(); }
  bool is_held() const;
  bool is_weakly_referenced() const;

 private:
  nb::object base_;
  FrameLease* lease_;  // the lease in `base_`
  std::uint32_t first_row_, rows_;
  std::vector<MadeArray> views_;  // by column
  std::uint32_t made_ = 0;        // number of arrays in `views_`
};

// All lent frames of a part.
class LentFrames {
 public:
  using Frame = std::shared_ptr<LentFrame>;

  // Lends the frame of this number. `make`: makes it the first time.
  template <class Make>
  const Frame& lend(std::uint32_t number, Make make) {
    if (frames_.size() <= number) frames_.resize(number + 1);
    Frame& frame = frames_[number];
    if (frame == nullptr)
      frame = make();
    else
      frame->lend();
    lent_ |= std::uint64_t{1} << number;
    return frame;
  }

  // Gives frames that are no longer held back to their book. Arrays with weak references must be freed before that,
  // which may run user code. If `may_run_code` is false, the frames of such arrays stay lent.
  void take_back(bool may_run_code);

 private:
  std::vector<Frame> frames_;  // null: never lent
  std::uint64_t lent_ = 0;     // one bit for each frame
};

}  // namespace remuda
