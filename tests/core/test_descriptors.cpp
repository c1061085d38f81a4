// Tests that Descriptors closes each descriptor once: in `close`, `close_first` or the destructor.
#include <fcntl.h>
#include <unistd.h>

#include "check.hpp"
#include "os/descriptors.hpp"

using remuda::Descriptors;

namespace {

int open_one() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST(they_are_closed_together_and_once) {
  Descriptors fds;
  const int first = open_one(), second = open_one();
  fds.make_room();
  fds.add(first);
  fds.add(second);
  CHECK(fds.size() == 2 && fds.at(1) == second);
  fds.close_first();
  CHECK(!is_open(first) && is_open(second) && fds.at(0) == second);
  fds.close();
  CHECK(!is_open(second) && fds.size() == 0);
  const int other = open_one();  // has the number of the first descriptor again
  CHECK_EQ(other, first);
  fds.close();
  CHECK(is_open(other));
  close(other);
}

TEST(they_are_closed_with_their_owner) {
  const int fd = open_one();
  {
    Descriptors fds;
    fds.add(fd);
  }
  CHECK(!is_open(fd));
}
