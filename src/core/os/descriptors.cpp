#include "os/descriptors.hpp"

#if REMUDA_LINUX

#include <fcntl.h>

#include <array>
#include <atomic>

namespace remuda {

namespace {

// Three descriptors, because a search through /proc has a directory, a file in it, and a process descriptor open at
// once.
std::array<std::atomic<int>, 3> reserve = {-1, -1, -1};

}  // namespace

void fill_reserve() {
  for (std::atomic<int>& place : reserve) {
    if (place.load() >= 0) continue;
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    int nobody = -1;
    if (!place.compare_exchange_strong(nobody, fd)) close(fd);  // another thread has filled this place of the reserve
  }
}

bool spend_reserve() {
  bool spent = false;
  for (std::atomic<int>& place : reserve) {
    const int fd = place.exchange(-1);
    if (fd < 0) continue;
    close(fd);
    spent = true;
  }
  return spent;
}

}  // namespace remuda

#endif
