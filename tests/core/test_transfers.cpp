// Messages that are under way go on when their sockets are ready; where none is, nobody sleeps for them.
#include "check.hpp"
#include "os/platform.hpp"
#include "pool/workers/transfers.hpp"

using namespace remuda;
using namespace std::chrono_literals;
using Way = Transfers::Way;

TEST(a_message_is_under_way_until_it_is_whole) {
  Transfers transfers(2);
  CHECK(!transfers.any_writing() && !transfers.is_partial(1, Way::kRead));
  transfers.note(1, Way::kWrite, true);
  transfers.note(0, Way::kRead, true);
  CHECK(transfers.any_writing() && transfers.is_partial(1, Way::kWrite) && !transfers.is_partial(1, Way::kRead));
  CHECK(transfers.is_partial(0, Way::kRead) && !transfers.is_partial(0, Way::kWrite));
  transfers.note(1, Way::kWrite, true);
  transfers.note(1, Way::kWrite, false);
  CHECK(!transfers.any_writing() && transfers.is_partial(0, Way::kRead));
}

TEST(the_messages_of_a_socket_end_with_it) {
  Transfers transfers(2);
  for (Way way : {Way::kRead, Way::kWrite}) transfers.note(1, way, true);
  transfers.end(1);
  CHECK(!transfers.any_writing() && !transfers.is_partial(1, Way::kRead));
  transfers.note(0, Way::kWrite, true);
  transfers.open(0, -1);
  CHECK(!transfers.any_writing() && transfers.moved(0) == Clock::time_point{});
}

TEST(nobody_sleeps_where_nothing_is_under_way) {
  Transfers transfers(2);
  CHECK(!transfers.sleep(1h));
  transfers.note(1, Way::kRead, true);
  transfers.note(1, Way::kRead, false);
  CHECK(!transfers.sleep(1h));
}

#if REMUDA_LINUX

#include <sys/socket.h>
#include <unistd.h>

namespace {

struct Sockets {
  Sockets() { CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0); }
  ~Sockets() {
    close(ends[0]);
    close(ends[1]);
  }
  void send_other() { CHECK_EQ(write(ends[1], "x", 1), 1); }
  void fill() {
    char bytes[4096] = {};
    while (write(ends[0], bytes, sizeof bytes) > 0) continue;
  }
  int ends[2];
};

}  // namespace

TEST(a_message_can_move_when_its_socket_is_ready) {
  Sockets sockets;
  Transfers transfers(1);
  transfers.open(0, sockets.ends[0]);
  CHECK(!transfers.can_move(0, Way::kRead) && transfers.moved(0) == Clock::time_point{});
  sockets.send_other();
  const auto before = Clock::now();
  CHECK(transfers.can_move(0, Way::kRead) && transfers.moved(0) >= before);
  CHECK(transfers.can_move(0, Way::kWrite));
  sockets.fill();
  CHECK(!transfers.can_move(0, Way::kWrite));
}

TEST(while_messages_move_sleeps_are_for_their_sockets) {
  Sockets still, ready;
  Transfers transfers(2);
  transfers.open(0, still.ends[0]);
  transfers.open(1, ready.ends[0]);
  transfers.note(0, Way::kRead, true);
  transfers.note(1, Way::kRead, true);
  ready.send_other();
  // A busy machine may not get here before what has moved counts as still.
  while (!transfers.sleep(1h)) CHECK(transfers.can_move(1, Way::kRead));
}

TEST(what_has_not_moved_for_long_is_not_slept_for) {
  Sockets sockets;
  Transfers transfers(1);
  transfers.open(0, sockets.ends[0]);
  transfers.note(0, Way::kRead, true);
  while (transfers.sleep(1h)) continue;
  CHECK(transfers.is_partial(0, Way::kRead));
}

#endif
