// Replaces the pool's shared memory by copies in a forked child of the pool's process.
//
// A batch is a view of memory that is shared with the workers. In a forked child (such as a data loader's) this memory
// would stay shared: the child's batch would change when the pool continues, and the child's writes would reach the
// parent. Therefore all memory that batches and rollouts hold is copied just before the fork. In the child, the copy
// replaces the shared memory at the same addresses. Memory that is not held is empty in the child, so children that
// outlive the pool do not keep its memory.
//
// The only cost is that each fork copies the frames that are held or in flight, and the held rollouts.
//
// Children made without `fork` (by vfork or clone) are not covered: they do not continue as a copy of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batches/frames.hpp"
#include "pool/rollouts/rollout.hpp"
#include "shm/arena.hpp"

namespace remuda {

// The frames and rollouts of one pool. Fork handlers consider them for as long as the arena exists.
class Lendings {
 public:
  // `slots`: the number of rows in a frame.
  static std::shared_ptr<Lendings> make(const std::shared_ptr<Arena>& arena, std::uint32_t slots);

  // Adds the rows of a column, which batches or rollouts may view. `at`: the memory of row `first_row`; the column has
  // no earlier rows. (The action columns have no rows of frames, only those of rollouts.)
  void add_column(std::byte* at, std::size_t row_bytes, std::uint32_t first_row = 0);
  // Adds the FrameBook of a part. `first`, `count`: the rows of each frame that belong to the part.
  void add_book(const std::shared_ptr<FrameBook>& book, std::uint32_t first, std::uint32_t count);
  // Adds a rollout. A fork copies its rows if the rollout still exists.
  void add_rollout(const std::shared_ptr<Rollout>& rollout);

 private:
  friend class Forks;
  struct Rows {
    std::byte* at;
    std::size_t bytes;    // the bytes of one row
    std::uint32_t first;  // the number of the row at `at`
  };
  struct Book {
    std::weak_ptr<FrameBook> book;
    std::uint32_t first, count;
  };

  Lendings(const std::shared_ptr<Arena>& arena, std::uint32_t slots) : arena_(arena), slots_(slots) {}
  bool any_taken() const;
  void copy_taken(const Arena& arena, std::byte* copy) const;

  std::weak_ptr<Arena> arena_;
  std::uint32_t slots_;
  std::vector<Rows> columns_;
  std::vector<Book> books_;
  std::vector<std::weak_ptr<Rollout>> rollouts_;
};

}  // namespace remuda
