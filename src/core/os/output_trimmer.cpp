#include "os/output_trimmer.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "ipc/doorbell.hpp"
#include "os/detached_thread.hpp"

namespace remuda {

namespace {

// Frees the old part of the file, if the file has grown enough. `done`: the offset up to which it was freed before.
// Returns the offset up to which it is freed now.
std::uint64_t cut(int fd, std::uint64_t kept, std::uint64_t done) {
  struct stat file;
  if (fstat(fd, &file) != 0) return done;
  auto size = static_cast<std::uint64_t>(file.st_size);
  if (size < done) done = 0;  // a child process has truncated the file
  if (size - done <= 2 * kept) return done;
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size - kept)) != 0) return done;
  return size - kept;
}

}  // namespace

void trim_output(int fd, std::uint64_t kept) {
  start_detached([fd, kept] {
    for (std::uint64_t done = 0;; std::this_thread::sleep_for(kSlice)) done = cut(fd, kept, done);
  });
}

}  // namespace remuda

#else

namespace remuda {
void trim_output(int, std::uint64_t) {}
}  // namespace remuda

#endif
