// Tests which messages outlive a socket, and that the next socket begins with another one. Python's tests have messages
// of any size and bytes that are no message.
#include "check.hpp"
#include "os/platform.hpp"
#include "pool/workers/message_socket.hpp"

#if REMUDA_LINUX

#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <string>

using namespace remuda;
using Arrival = MessageSocket::Arrival;

namespace {

using Parts = std::vector<std::string>;

// The two ends of a connection between a pool and a worker.
struct Connection {
  Connection() {
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    pool.open(fds[0]);
    worker.open(fds[1]);
  }
  ~Connection() {
    for (int fd : fds) close(fd);
  }

  int fds[2];
  MessageSocket pool, worker;
};

// A message that is received.
struct Received {
  Arrival from(MessageSocket& socket) {
    return socket.read(
        [this](std::uint64_t bytes) { return reinterpret_cast<std::byte*>(memory.emplace_back(bytes, 0).data()); });
  }
  Parts parts() const { return {memory.begin(), memory.end()}; }

  std::list<std::string> memory;
};

void post(MessageSocket& socket, const Parts& parts) {
  std::vector<Bytes> bytes;
  for (const std::string& part : parts) bytes.push_back(std::as_bytes(std::span(part)));
  socket.post(bytes);
}

const Parts kSmall{"head", "", "body"}, kLarge{std::string(3'000'000, 'a'), "b", std::string(9, 'c')};

}  // namespace

TEST(messages_that_are_held_are_sent_over_the_next_socket) {
  Connection ends;
  MessageSocket pool;
  post(pool, kSmall);  // dropped, because there is no socket
  pool.hold();
  post(pool, kLarge);
  CHECK(!pool.is_writing());
  pool.open(ends.fds[0]);
  Received received;
  while (received.from(ends.worker) == Arrival::kPartial) pool.write_on();
  CHECK(received.parts() == kLarge);
}

TEST(messages_of_a_dead_worker_are_received) {
  Connection ends;
  post(ends.worker, kSmall);
  close(std::exchange(ends.fds[1], -1));
  post(ends.pool, kLarge);  // the worker is gone: the message is lost without an error
  CHECK(!ends.pool.is_writing());
  Received whole, none;
  CHECK(whole.from(ends.pool) == Arrival::kWhole && whole.parts() == kSmall);
  CHECK(none.from(ends.pool) == Arrival::kLost && !ends.pool.is_reading());
}

TEST(another_socket_begins_with_another_message) {
  Connection before, after;
  CHECK_EQ(write(before.fds[1], MessageSocket::kMark.data(), 5), 5);
  CHECK(Received().from(before.pool) == Arrival::kPartial);
  before.pool.open(after.fds[0]);
  CHECK(!before.pool.is_reading() && before.pool.moved() == Clock::time_point{});
  post(after.worker, kSmall);
  Received received;
  CHECK(received.from(before.pool) == Arrival::kWhole && received.parts() == kSmall);
}

#endif
