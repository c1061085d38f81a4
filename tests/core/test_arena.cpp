// Tests that an arena's memory is zeros, and that an arena with another layout, or without memory, is refused and
// leaves nothing.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "check.hpp"
#include "os/platform.hpp"
#include "shm/arena.hpp"

#if REMUDA_LINUX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
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

}  // namespace

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
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    const int descriptors = open_descriptors();
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(Arena::create(1 << 20) != nullptr);
    CHECK_THROWS(std::system_error, Arena::create((1 << 20) + 1));
    CHECK_THROWS(std::system_error, Arena::create(0));
    CHECK_EQ(open_descriptors(), descriptors);
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

#else

TEST(without_memfd_an_arena_cannot_be_shared) {
  auto arena = Arena::create(4096);
  CHECK_EQ(arena->fd(), -1);
  CHECK_THROWS(std::runtime_error, Arena::attach(0, 4096));
}

#endif
