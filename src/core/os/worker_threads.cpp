#include "os/worker_threads.hpp"

#include "os/platform.hpp"

#if REMUDA_LINUX

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "ipc/doorbell.hpp"
#include "os/signals.hpp"

namespace remuda {

namespace {

// Starts a thread that is never joined. It blocks all signals, so that the main thread receives them, where Python
// handles them.
template <class Work>
void start_detached(Work work) {
  // The new thread inherits the signal mask. The destructor restores this thread's mask, even if no thread could start.
  const BlockedSignals blocked;
  std::thread(std::move(work)).detach();
}

// The longest time between two checks of a file that does not grow.
constexpr Nanoseconds kQuietSlice = std::chrono::seconds(1);

// Frees the old part of a file of this size, if the file has grown enough. `done`: the offset up to which it was freed
// before. Returns the offset up to which it is freed now.
std::uint64_t cut(int fd, std::uint64_t size, std::uint64_t kept, std::uint64_t done) {
  if (size < done) done = 0;  // a child process has truncated the file
  if (size - done <= 2 * kept) return done;
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size - kept)) != 0) return done;
  return size - kept;
}

}  // namespace

void tie_life_to(int pidfd) {
  start_detached([pidfd] {
    pollfd fd{pidfd, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
    }
    // Kills the worker's own group. An env may have moved the worker to another group, which must survive, so the
    // worker is killed separately.
    killpg(getpid(), SIGKILL);
    kill(getpid(), SIGKILL);
  });
}

void trim_output(int fd, std::uint64_t kept) {
  start_detached([fd, kept] {
    std::uint64_t done = 0, before = 0;
    for (Nanoseconds slice = kSlice;; std::this_thread::sleep_for(slice)) {
      struct stat file;
      if (fstat(fd, &file) != 0) continue;
      const auto size = static_cast<std::uint64_t>(file.st_size);
      done = cut(fd, size, kept, done);
      slice = size != before ? kSlice : std::min<Nanoseconds>(2 * slice, kQuietSlice);
      before = size;
    }
  });
}

}  // namespace remuda

#endif
