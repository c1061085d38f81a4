// Tests that processes share an arena's memory, that an arena with another layout is refused, and that no mapping or
// descriptor is left over.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "check.hpp"
#include "os/platform.hpp"
#include "shm/arena.hpp"

#if REMUDA_LINUX
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace remuda;

TEST(an_arena_is_zeros_after_its_header_and_starts_on_a_cache_line) {
  for (std::size_t bytes : {100, 4096, 4097, 1'000'000}) {
    auto arena = Arena::create(bytes);
    CHECK_EQ(arena->bytes(), bytes);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(arena->base()) % 64, 0U);
    CHECK(std::all_of(arena->base() + sizeof(ArenaHeader), arena->base() + bytes,
                      [](std::byte one) { return one == std::byte{0}; }));
    std::memset(arena->base(), 1, bytes);
  }
}

TEST(who_asked_is_called_while_the_memory_is_still_there) {
  int calls = 0;
  std::byte seen{};
  auto arena = Arena::create(4096);
  *arena->at<std::byte>(4095) = std::byte{7};
  arena->before_end([&, last = arena->at<std::byte>(4095)] { ++calls, seen = *last; });
  auto share = arena->weak_from_this().lock();
  arena.reset();
  CHECK_EQ(calls, 0);
  share.reset();
  CHECK_EQ(calls, 1);
  CHECK(seen == std::byte{7});

  arena = Arena::create(4096);
  arena->before_end([&] { ++calls; });
  arena->forget_calls();
  arena.reset();
  CHECK_EQ(calls, 1);
}

TEST(an_arena_ends_as_its_maker_wants) {
  static Arena* ended = nullptr;
  auto arena = Arena::create(4096, [](Arena* one) {
    ended = one;
    Arena::destroy(one);
  });
  Arena* const raw = arena.get();
  arena.reset();
  CHECK(ended == raw);
}

#if REMUDA_LINUX

namespace {

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) != -1;
  return count;
}

int mapped_arenas() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:remuda") != std::string::npos;
  return count;
}

// Runs `body` in a forked child, where every check must pass.
template <class Body>
void in_a_child(Body body) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

}  // namespace

TEST(a_process_that_locks_its_memory_gives_none_to_mere_addresses) {
  in_a_child([] {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    CHECK_EQ(mlockall(MCL_FUTURE), 0);
    auto arena = Arena::create(kBytes, std::vector<ByteRange>{{0, 4096}});
    auto other = Arena::attach(arena->fd(), kBytes);
    struct stat file{};
    CHECK_EQ(fstat(arena->fd(), &file), 0);
    CHECK(file.st_blocks * 512 <= 4096);
    std::byte* const copy = arena->reserve_copy();
    CHECK(copy != nullptr);
    std::vector<unsigned char> present(kBytes / 4096);
    CHECK_EQ(mincore(copy, kBytes, present.data()), 0);
    CHECK(std::count(present.begin(), present.end(), 0) + 1 >= static_cast<std::ptrdiff_t>(present.size()));
    arena->drop_copy(copy);
  });
}

TEST(another_process_can_attach_and_may_outlive_the_creator) {
  auto arena = Arena::create(1 << 16);
  *arena->at<std::uint64_t>(4096) = 42;
  auto other = Arena::attach(arena->fd(), 1 << 16);
  in_a_child([&] {
    auto attached = Arena::attach(arena->fd(), 1 << 16);
    CHECK_EQ(*attached->at<std::uint64_t>(4096), 42U);
    *attached->at<std::uint64_t>(5000) = 43;
  });
  arena.reset();
  CHECK_EQ(*other->at<std::uint64_t>(5000), 43U);
}

TEST(an_arena_of_another_build_and_what_is_no_arena_are_refused) {
  auto arena = Arena::create(1 << 16);
  auto* header = arena->at<ArenaHeader>(0);
  const int mapped = mapped_arenas();
  auto attach = [&](std::size_t bytes = 1 << 16) { return Arena::attach(arena->fd(), bytes); };
  CHECK_THROWS(std::runtime_error, attach((1 << 16) - 64));
  CHECK_THROWS(std::runtime_error, attach((1 << 16) + 64));
  for (std::uint64_t* field : {&header->magic, &header->version, &header->bytes}) {
    *field ^= 1;
    CHECK_THROWS(std::runtime_error, attach());
    *field ^= 1;
  }
  CHECK_THROWS(std::system_error, Arena::attach(-1, 4096));
  int zeros = open("/dev/zero", O_RDWR);
  CHECK_THROWS(std::runtime_error, Arena::attach(zeros, 4096));
  close(zeros);
  CHECK_EQ(mapped_arenas(), mapped);
  CHECK(attach() != nullptr);
}

// Runs in a child with a memory limit. A request for more memory than the machine has could start the kernel's OOM
// killer.
TEST(memory_that_is_not_there_is_an_error_at_once) {
  in_a_child([] {
    const int descriptors = open_descriptors();
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(Arena::create(1 << 20) != nullptr);
    CHECK_THROWS(std::system_error, Arena::create((1 << 20) + 1));
    CHECK_THROWS(std::system_error, Arena::create(0));
    CHECK_EQ(open_descriptors(), descriptors);
  });
}

TEST(nothing_is_left_behind) {
  const int descriptors = open_descriptors(), mapped = mapped_arenas();
  auto arena = Arena::create(1 << 20);
  CHECK_EQ(open_descriptors(), descriptors + 2);  // of the memory, and of the wakeup
  auto other = Arena::attach(arena->fd(), 1 << 20);
  CHECK_EQ(open_descriptors(), descriptors + 2);
  CHECK_EQ(mapped_arenas(), mapped + 2);
  arena->close_fd();
  arena->close_fd();
  CHECK_EQ(arena->fd(), -1);
  CHECK_EQ(open_descriptors(), descriptors);
  arena.reset();
  other.reset();
  CHECK_EQ(mapped_arenas(), mapped);
}

#else

TEST(without_memfd_an_arena_cannot_be_shared) {
  auto arena = Arena::create(4096);
  CHECK_EQ(arena->fd(), -1);
  CHECK_THROWS(std::runtime_error, Arena::attach(0, 4096));
}

#endif
