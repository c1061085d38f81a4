#include "shm/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "os/platform.hpp"

#if REMUDA_LINUX
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace remuda {

#if REMUDA_LINUX

namespace {

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;  // takes memory only where it is written to

std::string megabytes(std::size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MB"; }

std::byte* map(int fd, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail(errno, "could not map " + megabytes(bytes) + " of shared memory");
  return static_cast<std::byte*>(base);
}

// Step by step: the kernel takes back what a signal has interrupted, and a signal may come every few milliseconds.
// Returns an error number, or 0.
int reserve(int fd, std::size_t bytes) {
  constexpr std::size_t kStep = std::size_t{64} << 20;
  for (std::size_t at = 0; at < bytes; at += kStep) {
    const auto length = static_cast<off_t>(std::min(kStep, bytes - at));
    int error;
    do {
      error = posix_fallocate(fd, static_cast<off_t>(at), length);  // returns its error; it does not set errno
    } while (error == EINTR);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace

std::shared_ptr<Arena> Arena::create(std::size_t bytes) {
  int fd = memfd_create("remuda", MFD_CLOEXEC);
  if (fd < 0) fail(errno, "could not create the pool's shared memory (memfd_create)");
  if (int error = reserve(fd, bytes)) {
    close(fd);
    fail(error, "could not reserve " + megabytes(bytes) +
                    " of shared memory for the pool; use fewer envs, fewer frames or smaller observations");
  }
  std::byte* base;
  try {
    base = map(fd, bytes);
  } catch (...) {
    close(fd);
    throw;
  }
  auto arena = std::shared_ptr<Arena>(new Arena(base, bytes, fd));
  auto* header = arena->at<ArenaHeader>(0);
  header->bytes = bytes;
  header->version = ArenaHeader::kVersion;
  header->magic = ArenaHeader::kMagic;
  return arena;
}

std::shared_ptr<Arena> Arena::attach(int fd, std::size_t bytes) {
  auto arena = std::shared_ptr<Arena>(new Arena(map(fd, bytes), bytes, -1));
  const auto* header = arena->at<ArenaHeader>(0);
  if (header->magic != ArenaHeader::kMagic || header->version != ArenaHeader::kVersion || header->bytes != bytes)
    throw std::runtime_error("the pool and its worker disagree about the arena: they run different builds of remuda");
  return arena;
}

Arena::~Arena() {
  munmap(base_, bytes_);
  close_fd();
}

void Arena::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::byte* Arena::reserve_copy() const {
  void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, kPrivate, -1, 0);
  return copy == MAP_FAILED ? nullptr : static_cast<std::byte*>(copy);
}

void Arena::drop_copy(std::byte* copy) const { munmap(copy, bytes_); }

// Either takes the place of the mapping that is there in one step, or leaves that.
void Arena::become(std::byte* copy) const {
  if (copy == nullptr) {
    mmap(base_, bytes_, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
  } else {
    mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, base_);
  }
}

#else  // Without memfd the thread and serial backends still work: private memory is all they need.

namespace {
constexpr std::align_val_t kAlignment{64};  // of what lies in it: a cache line
}

std::shared_ptr<Arena> Arena::create(std::size_t bytes) {
  void* base = ::operator new(bytes, kAlignment);
  std::memset(base, 0, bytes);
  auto arena = std::shared_ptr<Arena>(new Arena(static_cast<std::byte*>(base), bytes, -1));
  *arena->at<ArenaHeader>(0) = {ArenaHeader::kMagic, ArenaHeader::kVersion, bytes, {}};
  return arena;
}

std::shared_ptr<Arena> Arena::attach(int, std::size_t) {
  throw std::runtime_error("sharing an arena between processes needs Linux");
}

Arena::~Arena() { ::operator delete(base_, kAlignment); }

void Arena::close_fd() {}

#endif

}  // namespace remuda
