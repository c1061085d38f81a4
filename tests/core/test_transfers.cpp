// Tests that the wait for sockets ends when a message can continue, and that there is no wait if no message is under
// way.
#include "check.hpp"
#include "os/platform.hpp"
#include "pool/workers/transfers.hpp"

#if REMUDA_LINUX

#include <string>

#include "socket_pair.hpp"

using namespace remuda;
using namespace std::chrono_literals;
using Arrival = MessageSocket::Arrival;

namespace {

const MessageSocket::MakePart kNoPart = [](std::uint64_t) -> std::byte* { throw std::bad_alloc(); };

}  // namespace

TEST(there_is_no_wait_without_a_message) {
  SocketPair pair;
  Transfers transfers(2);
  CHECK(!transfers.under_way().sleep(1h));
  transfers.open(1, pair.ends[0]);
  CHECK(!transfers.under_way().sleep(1h));
}

TEST(a_wait_ends_when_a_message_can_go_on) {
  SocketPair still, ready;
  Transfers transfers(2);
  transfers.open(0, still.ends[0]);
  transfers.open(1, ready.ends[0]);
  CHECK_EQ(write(ready.ends[1], MessageSocket::kMark.data(), 5), 5);
  // On a busy machine, the messages may count as still before the wait begins. Then the test begins them again.
  do {
    transfers.open(0, still.ends[0]);
    CHECK(transfers.read(0, kNoPart) == Arrival::kPartial);
  } while (!transfers.under_way().sleep(1h));
  CHECK(transfers.read(1, kNoPart) == Arrival::kPartial && transfers[1].is_reading());
}

TEST(a_message_that_stands_still_is_not_waited_for) {
  SocketPair pair;
  Transfers transfers(1);
  transfers.open(0, pair.ends[0]);
  CHECK(transfers.read(0, kNoPart) == Arrival::kPartial);
  while (transfers.under_way().sleep(1h)) continue;
  CHECK(transfers[0].is_reading());
  transfers.open(0, -1);
  CHECK(!transfers[0].is_reading() && !transfers.under_way().sleep(1h));
}

TEST(a_message_is_written_until_the_worker_is_gone) {
  SocketPair pair;
  Transfers transfers(1);
  transfers.open(0, pair.ends[0]);
  const std::string large(3'000'000, 'a');
  const Bytes part = std::as_bytes(std::span(large));
  transfers.post(0, std::span(&part, 1));
  CHECK(transfers[0].is_writing());
  transfers.write_on();
  CHECK(transfers[0].is_writing());
  pair.close_other();
  transfers.write_on();
  CHECK(!transfers[0].is_writing() && !transfers.under_way().sleep(1h));
}

#endif
