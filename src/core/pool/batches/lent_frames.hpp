// Frames that are lent, with their arrays, which are the same objects each time that a frame is lent.
//
// To make a frame's arrays and to free them was a third of what a step cost the caller.  So they stay, and a frame
// counts as lent for as long as anybody but us holds one of them, or its lease, which is the base of views of views.
// Nobody tells us when that ends: we look when frames are needed.
//
// All of this needs the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/frames.hpp"
#include "python/made_array.hpp"
#include "shm/columns.hpp"

namespace remuda {

// One of them.  Batches share it, and may outlive the pool.
class LentFrame {
 public:
  // `frame`: of the book, lent from now on; the rows are its arrays'.
  LentFrame(std::shared_ptr<Arena> arena, std::shared_ptr<FrameBook> book, std::uint32_t frame, std::uint32_t first_row,
            std::uint32_t rows);

  const nb::object& lease() const { return base_; }

  // A view of the rows in the column of this number.  The same one as before, unless somebody has changed its shape,
  // dtype or flags.
  nb::object view(const std::vector<Column>& columns, std::size_t column);

  void lend() { lease_->begin(); }
  void take_back() { lease_->end(); }
  bool is_held() const;
  bool is_weakly_referenced() const;

 private:
  nb::object base_;
  FrameLease* lease_;  // the same
  std::uint32_t first_row_, rows_;
  std::vector<MadeArray> views_;  // by column
  std::uint32_t made_ = 0;        // of them
};

// All of a part.
class LentFrames {
 public:
  using Frame = std::shared_ptr<LentFrame>;

  // The frame of this number, which is lent from now on.  `make`: makes it, the first time.
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

  // Gives those back to their book that nobody holds any more.  Arrays that somebody has a weak reference to must end
  // before, which may run anybody's code: where that must not be, their frames stay lent.
  void take_back(bool may_run_code);

 private:
  std::vector<Frame> frames_;  // null: was not lent yet
  std::uint64_t lent_ = 0;     // by bit
};

}  // namespace remuda
