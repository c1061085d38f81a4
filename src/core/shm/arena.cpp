#include "shm/arena.hpp"

#include <algorithm>
#include <atomic>
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

// A mapping with these flags takes memory only for pages that are written.
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::string megabytes(std::size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MB"; }

const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));

// Maps addresses that are not locked in memory. After mlockall(MCL_FUTURE) the kernel would give memory to all of a new
// mapping, and refuse one above RLIMIT_MEMLOCK. So one page is mapped and unlocked, and then extended.
void* map_unlocked(std::size_t bytes, int protection, int flags, int fd) {
  void* page = mmap(nullptr, kPage, protection, flags, fd, 0);
  if (page == MAP_FAILED) return page;
  munlock(page, kPage);
  void* base = mremap(page, kPage, bytes, MREMAP_MAYMOVE);
  if (base == MAP_FAILED) {
    const int error = errno;
    munmap(page, kPage);
    errno = error;
  }
  return base;
}

std::byte* map(int fd, std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* base = map_unlocked(bytes, protection, MAP_SHARED, fd);
  if (base == MAP_FAILED) fail(errno, "could not map " + megabytes(bytes) + " of shared memory");
  // Excludes the arena from the core dumps of crashed envs: it is large, and most of it has no memory.
  madvise(base, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(base);
}

// Gives memory to a range in steps. The kernel undoes a whole allocation that a signal interrupts, and signals may
// arrive every few milliseconds. Returns an error number, or 0.
int allocate(int fd, ByteRange range) {
  constexpr std::uint64_t kStep = std::uint64_t{64} << 20;
  for (std::uint64_t at = 0; at < range.bytes; at += kStep) {
    const auto length = static_cast<off_t>(std::min(kStep, range.bytes - at));
    int error;
    do {
      // posix_fallocate returns the error and does not set errno.
      error = posix_fallocate(fd, static_cast<off_t>(range.offset + at), length);
    } while (error == EINTR);
    if (error != 0) return error;
  }
  return 0;
}

int allocate(int fd, std::size_t bytes, const std::vector<ByteRange>& reserved) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return errno;
  for (const ByteRange& range : reserved)
    if (const int error = allocate(fd, range)) return error;
  return 0;
}

// Gives memory to a range by address instead of by descriptor, which the process may have closed. Returns an error
// number, or 0.
int populate(std::byte* at, std::uint64_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  int error;
  do {
    error = madvise(at, bytes, kPopulateWrite) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error != EINVAL) return error;
  // A kernel older than 5.14 lacks the advice. Writing to each page gives it memory, too.
  for (std::uint64_t page = 0; page < bytes; page += kPage)
    reinterpret_cast<std::atomic<char>*>(at + page)->fetch_add(0);
  return 0;
}

}  // namespace

const bool Arena::kIsSparse = true;

std::shared_ptr<Arena> Arena::create(std::size_t bytes, const std::vector<ByteRange>& reserved, Deleter deleter) {
  int fd = memfd_create("remuda", MFD_CLOEXEC);
  if (fd < 0) fail(errno, "could not create the pool's shared memory (memfd_create)");
  if (int error = allocate(fd, bytes, reserved)) {
    close(fd);
    std::uint64_t wanted = 0;
    for (const ByteRange& range : reserved) wanted += range.bytes;
    fail(error, "could not reserve " + megabytes(wanted) +
                    " of shared memory for the pool; use fewer envs, fewer frames or smaller observations");
  }
  std::byte* base;
  try {
    base = map(fd, bytes);
  } catch (...) {
    close(fd);
    throw;
  }
  auto arena = std::shared_ptr<Arena>(new Arena(base, bytes, fd, Wakeup::create()), deleter);
  if (arena->wakeup_.fd() < 0) fail(errno, "could not create the pool's wakeup descriptor (eventfd)");
  arena->lasting_ = reserved;
  auto* header = arena->at<ArenaHeader>(0);
  header->bytes = bytes;
  header->version = ArenaHeader::kVersion;
  header->magic = ArenaHeader::kMagic;
  return arena;
}

std::shared_ptr<Arena> Arena::attach(int fd, std::size_t bytes, Deleter deleter, bool is_read_only, int wakeup_fd) {
  std::byte* base = map(fd, bytes, is_read_only ? PROT_READ : PROT_READ | PROT_WRITE);
  std::shared_ptr<Arena> arena(new Arena(base, bytes, -1, Wakeup(wakeup_fd)), deleter);
  const auto* header = arena->at<ArenaHeader>(0);
  if (header->magic != ArenaHeader::kMagic || header->version != ArenaHeader::kVersion ||
      header->bytes != arena->bytes_)
    throw std::runtime_error("the pool and its worker disagree about the arena: they run different builds of remuda");
  return arena;
}

Arena::~Arena() {
  for (const auto& call : before_end_) call();
  munmap(base_, bytes_);
  close_fd();
}

void Arena::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  wakeup_.close();
}

void Arena::reserve(ByteRange range) const {
  const std::uint64_t from = range.offset / kPage * kPage;
  const int error = populate(base_ + from, range.offset + range.bytes - from);
  if (error != 0) fail(error, "could not reserve " + megabytes(range.bytes) + " of shared memory");
}

void Arena::release(ByteRange range) const {
  const std::uint64_t from = (range.offset + kPage - 1) / kPage * kPage;
  const std::uint64_t to = (range.offset + range.bytes) / kPage * kPage;
  if (from < to) madvise(base_ + from, to - from, MADV_REMOVE);
}

std::byte* Arena::reserve_copy() const {
  void* copy = map_unlocked(bytes_, PROT_READ | PROT_WRITE, kPrivate, -1);
  return copy == MAP_FAILED ? nullptr : static_cast<std::byte*>(copy);
}

void Arena::drop_copy(std::byte* copy) const { munmap(copy, bytes_); }

// Both system calls replace the existing mapping in one step, or leave it unchanged.
void Arena::become(std::byte* copy) const {
  if (copy == nullptr)
    mmap(base_, bytes_, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
  else
    mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, base_);
}

#else  // Without memfd the thread and serial backends still work: private memory is all they need.

namespace {
constexpr std::align_val_t kAlignment{64};  // a cache line
}

const bool Arena::kIsSparse = false;

std::shared_ptr<Arena> Arena::create(std::size_t bytes, const std::vector<ByteRange>&, Deleter deleter) {
  void* base = ::operator new(bytes, kAlignment);
  std::memset(base, 0, bytes);
  auto arena = std::shared_ptr<Arena>(new Arena(static_cast<std::byte*>(base), bytes, -1, Wakeup::create()), deleter);
  arena->lasting_ = {{0, bytes}};
  *arena->at<ArenaHeader>(0) = {ArenaHeader::kMagic, ArenaHeader::kVersion, bytes, {}};
  return arena;
}

std::shared_ptr<Arena> Arena::attach(int, std::size_t, Deleter, bool, int) {
  throw std::runtime_error("sharing an arena between processes needs Linux");
}

Arena::~Arena() {
  for (const auto& call : before_end_) call();
  ::operator delete(base_, kAlignment);
}

void Arena::close_fd() {}

void Arena::reserve(ByteRange) const {}

void Arena::release(ByteRange) const {}

#endif

}  // namespace remuda
