// The arena: one anonymous mapping that holds everything a pool shares with its workers.
//
// It is a memfd: no name in /dev/shm that a SIGKILL could leak, no 64 MB container limit.  It is
// reserved when it is created, so a machine that is out of memory says so now, as an error, and not
// later, as a SIGBUS in the middle of training.  Addresses differ from process to process, so
// nothing in the arena is a pointer: everything is an offset from its first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace remuda {

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
// memory outlives the pool for as long as somebody still looks at a batch.
class Arena {
 public:
  // Throws std::bad_alloc-like std::system_error when the memory cannot be reserved.
  static std::shared_ptr<Arena> create(std::size_t bytes);
  // Maps an arena that another process created.  Takes no ownership of `fd`.
  static std::shared_ptr<Arena> attach(int fd, std::size_t bytes);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // -1 once closed, or where the platform has none

  // For a forked child, see lendings.hpp: memory of the same size, empty, that is nobody else's (null: there is none);
  // the end of it; and that it is what lies at our addresses from now on (null: empty memory does).
  std::byte* reserve_copy() const;
  void drop_copy(std::byte* copy) const;
  void become(std::byte* copy) const;

  // The descriptor is needed only until the workers have attached; keeping it would cost one per pool.
  void close_fd();

 private:
  Arena(std::byte* base, std::size_t bytes, int fd) : base_(base), bytes_(bytes), fd_(fd) {}

  std::byte* base_;
  std::size_t bytes_;
  int fd_;
};

}  // namespace remuda
