// What a forked child of a pool's process finds where the pool's memory was.
//
// A batch is a view of memory that is shared with the workers.  In a child of our process (a data loader's, say) it
// would stay shared: the child's batch would change under it when the pool goes on, and what the child writes would
// land in the parent's.  So whatever is held at the moment of the fork is copied just before it, and in the child that
// copy takes the place of the shared memory, at the same addresses.  What nobody holds is empty there, and the pool's
// memory is not kept by children that outlive it.
//
// It costs a fork the copying of the frames that are held or in flight, and nothing else anything.
//
// Not for whoever forks without `fork` (vfork, clone): such a child does not go on as a copy of us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/frames.hpp"
#include "pool/rollouts/rollout.hpp"
#include "shm/arena.hpp"

namespace remuda {

// Of one pool: which bytes its frames are.  Known to all forks for as long as the arena is there.
class Lendings {
 public:
  // `slots`: rows of a frame.  `first_frame`: the books' first; a pool's is 1, after the scratch frame.
  static std::shared_ptr<Lendings> make(const std::shared_ptr<Arena>& arena, std::uint32_t slots,
                                        std::uint32_t first_frame = 1);

  // An array of rows that batches may be views of.
  void add_column(std::byte* rows, std::size_t row_bytes);
  // `first`, `count`: of the rows of each frame, those that the book's leases are for.
  void add_book(const std::shared_ptr<FrameBook>& book, std::uint32_t first, std::uint32_t count);
  // One that is copied for as long as somebody holds it; with its actions, whose columns (rows from that of the first
  // rollout on that there can be) are none of those above.
  void add_rollout(const std::shared_ptr<Rollout>& rollout);
  void add_action_column(std::byte* rows, std::size_t row_bytes);
  void set_first_rollout_row(std::uint32_t row) { first_rollout_row_ = row; }

 private:
  friend class Forks;
  struct Rows {
    std::byte* at;
    std::size_t bytes;  // of one
  };
  struct Book {
    std::weak_ptr<FrameBook> book;
    std::uint32_t first, count;
  };

  Lendings(const std::shared_ptr<Arena>& arena, std::uint32_t slots, std::uint32_t first_frame)
      : arena_(arena), slots_(slots), first_frame_(first_frame) {}
  bool any_taken() const;
  void copy_taken(const Arena& arena, std::byte* copy) const;
  void copy_frames(const Arena& arena, std::byte* copy) const;
  void copy_rollouts(const Arena& arena, std::byte* copy) const;

  std::weak_ptr<Arena> arena_;
  std::uint32_t slots_, first_frame_;
  std::vector<Rows> columns_;
  std::vector<Rows> actions_;
  std::vector<Book> books_;
  std::vector<std::weak_ptr<Rollout>> rollouts_;
  std::uint32_t first_rollout_row_ = 0;
};

}  // namespace remuda
