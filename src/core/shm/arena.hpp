// The arena: one anonymous mapping that holds everything a pool shares with its workers.
//
// It is a memfd. A memfd has no name in /dev/shm, so a SIGKILL leaves no file behind, and it is not subject to the 64
// MB limit of /dev/shm in containers. Its memory is reserved when it is created. A machine that is out of memory thus
// reports an error at once, and not a SIGBUS in the middle of training. Addresses differ from process to process, so
// nothing in the arena is a pointer: everything is an offset from its first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "os/wakeup.hpp"

namespace remuda {

// A range of bytes of an arena.
struct ByteRange {
  std::uint64_t offset, bytes;
};

// The first 64 bytes of every arena. A process that attaches checks them, so that two builds of remuda with different
// layouts refuse each other instead of reading garbage.
struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x616475'6d6572ULL;  // "remuda", little endian
  static constexpr std::uint64_t kVersion = 1;

  std::uint64_t magic;    //  0
  std::uint64_t version;  //  8
  std::uint64_t bytes;    // 16
  std::uint64_t unused[5];
};
static_assert(sizeof(ArenaHeader) == 64 && offsetof(ArenaHeader, bytes) == 16);

// Owns one mapping. The pool and each array of its batches share it by std::shared_ptr, so the memory outlives the pool
// for as long as any of these arrays lives. They share the arena itself (`enable_shared_from_this`), not its Python
// object, because arrays may outlive the interpreter.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // A function that deletes an arena when its last share is gone.
  using Deleter = void (*)(Arena*);
  static void destroy(Arena* arena) { delete arena; }

  // Whether an arena can have address ranges without memory.
  static const bool kIsSparse;

  // Creates an arena. `reserved`: the only ranges that get memory, in order; the rest is addresses without memory.
  // Throws std::system_error when the memory cannot be reserved.
  static std::shared_ptr<Arena> create(std::size_t bytes, Deleter deleter = destroy) {
    return create(bytes, {{0, bytes}}, deleter);
  }
  static std::shared_ptr<Arena> create(std::size_t bytes, const std::vector<ByteRange>& reserved,
                                       Deleter deleter = destroy);
  // Maps an arena that another process created. Does not take ownership of `fd`, but of `wakeup_fd`, the descriptor of
  // `wakeup` (-1: none). Throws std::runtime_error if the arena was created by a build of remuda with another layout.
  static std::shared_ptr<Arena> attach(int fd, std::size_t bytes, Deleter deleter = destroy, bool is_read_only = false,
                                       int wakeup_fd = -1);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  // The ranges that have memory for the arena's whole life, in order.
  const std::vector<ByteRange>& lasting() const { return lasting_; }
  int fd() const { return fd_; }  // -1 once closed, or if the platform has none

  // Wakes the pool's supervisor. Workers use it for results that only the supervisor can handle.
  const Wakeup& wakeup() const { return wakeup_; }

  // Gives zeroed memory to a range. If it throws std::system_error, part of the range may have memory.
  void reserve(ByteRange range) const;
  // Frees the memory of the pages that lie entirely in a range.
  void release(ByteRange range) const;

  // The next three functions serve a forked child, see lendings.hpp. `reserve_copy` maps empty private memory of the
  // arena's size, and returns null if it cannot. `drop_copy` unmaps this memory. `become` moves it to the arena's
  // addresses; without a copy (null) it puts empty memory there.
  std::byte* reserve_copy() const;
  void drop_copy(std::byte* copy) const;
  void become(std::byte* copy) const;

  // Closes the descriptor. Workers need it to attach, and other processes to observe the pool (see
  // `_wire/pool_description.py`).
  void close_fd();

  // Adds a function that runs once, just before the memory is unmapped, to undo changes to its pages. It must not
  // throw.
  void before_end(std::function<void()> call) { before_end_.push_back(std::move(call)); }
  void forget_calls() { before_end_.clear(); }

 private:
  Arena(std::byte* base, std::size_t bytes, int fd, Wakeup wakeup)
      : base_(base), bytes_(bytes), fd_(fd), wakeup_(wakeup) {}

  std::byte* base_;
  std::size_t bytes_;
  int fd_;
  Wakeup wakeup_;
  std::vector<ByteRange> lasting_;
  std::vector<std::function<void()>> before_end_;
};

}  // namespace remuda
