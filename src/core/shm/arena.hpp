// The arena: one anonymous mapping that holds everything a pool shares with its workers.
//
// It is a memfd: no name in /dev/shm that a SIGKILL could leak, no 64 MB container limit.  It is
// reserved when it is created, so a machine that is out of memory says so now, as an error, and not
// later, as a SIGBUS in the middle of training.  Addresses differ from process to process, so
// nothing in the arena is a pointer: everything is an offset from its first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace remuda {

// Neighbouring bytes of an arena.
struct Stretch {
  std::uint64_t offset, bytes;
};

// The first 64 bytes of every arena.  A worker that attaches checks them, so that two builds of
// remuda that disagree about the layout refuse each other instead of reading garbage.
struct ArenaHeader {
  static constexpr std::uint64_t kMagic = 0x616475'6d6572ULL;  // "remuda", little endian
  static constexpr std::uint64_t kVersion = 1;

  std::uint64_t magic;    //  0
  std::uint64_t version;  //  8
  std::uint64_t bytes;    // 16
  std::uint64_t unused[5];
};
static_assert(sizeof(ArenaHeader) == 64 && offsetof(ArenaHeader, bytes) == 16);

// Owns one mapping.  Shared (by std::shared_ptr) between the pool and every array handed out, so the
// memory outlives the pool for as long as somebody still looks at a batch.  Every share is one of the arena itself
// (`enable_shared_from_this`), not of the Python object that stands for it: arrays may outlive the interpreter.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Deletes an arena that nobody has a share of any more.
  using Deleter = void (*)(Arena*);
  static void destroy(Arena* arena) { delete arena; }

  // Whether an arena can have addresses without memory.
  static const bool kIsSparse;

  // Throws std::bad_alloc-like std::system_error when the memory cannot be reserved.  `reserved`: the only stretches
  // that get memory, in order; the rest has addresses alone.
  static std::shared_ptr<Arena> create(std::size_t bytes, Deleter deleter = destroy);
  static std::shared_ptr<Arena> create(std::size_t bytes, const std::vector<Stretch>& reserved,
                                       Deleter deleter = destroy);
  // Maps an arena that another process created.  Takes no ownership of `fd`.
  static std::shared_ptr<Arena> attach(int fd, std::size_t bytes, Deleter deleter = destroy);

  // The same, to be looked at and not written to.
  static std::shared_ptr<Arena> look_at(int fd, std::size_t bytes, Deleter deleter = destroy);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  // Another one, that ends in the same way.
  std::shared_ptr<Arena> another(std::size_t bytes) {
    return create(bytes, *std::get_deleter<Deleter>(shared_from_this()));
  }

  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  // What has memory from the beginning to the end, in order.
  const std::vector<Stretch>& lasting() const { return lasting_; }
  int fd() const { return fd_; }  // -1 once closed, or where the platform has none

  // Gives memory to a stretch, or throws std::system_error: then it may have some.  All of it is zero where it had
  // none.
  void reserve(Stretch stretch) const;
  // Takes the memory of what whole pages lie in a stretch.
  void release(Stretch stretch) const;

  // For a forked child, see lendings.hpp: memory of the same size, empty, that is nobody else's (null: there is none);
  // the end of it; and that it is what lies at our addresses from now on (null: empty memory does).
  std::byte* reserve_copy() const;
  void drop_copy(std::byte* copy) const;
  void become(std::byte* copy) const;

  // The descriptor is for workers that attach, and for other processes that look on (see `_wire/card.py`).
  void close_fd();

  // Called once, just before the memory goes: to undo what was done to its pages.  Must not throw.
  void before_end(std::function<void()> call) { before_end_.push_back(std::move(call)); }
  void forget_calls() { before_end_.clear(); }

 private:
  static std::shared_ptr<Arena> checked(std::shared_ptr<Arena> arena);

  Arena(std::byte* base, std::size_t bytes, int fd) : base_(base), bytes_(bytes), fd_(fd) {}

  std::byte* base_;
  std::size_t bytes_;
  int fd_;
  std::vector<Stretch> lasting_;
  std::vector<std::function<void()>> before_end_;
};

}  // namespace remuda
