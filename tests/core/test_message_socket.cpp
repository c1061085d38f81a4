// Tests that messages arrive whole, even if the socket takes or returns only a few bytes at a time.
#include "check.hpp"
#include "os/platform.hpp"
#include "pool/workers/message_socket.hpp"

#if REMUDA_LINUX

#include <cstring>
#include <list>
#include <string>

#include "socket_pair.hpp"

using namespace remuda;
using Arrival = MessageSocket::Arrival;

namespace {

// Memory for the parts of a message that is received.
struct Received {
  std::list<std::string> parts;
  MessageSocket::MakePart make = [this](std::uint64_t bytes) {
    return reinterpret_cast<std::byte*>(parts.emplace_back(bytes, 0).data());
  };
};

std::vector<Bytes> bytes_of(const std::vector<std::string>& parts) {
  std::vector<Bytes> bytes;
  for (const std::string& part : parts) bytes.push_back(std::as_bytes(std::span(part)));
  return bytes;
}

std::vector<std::string> parts_of(const Received& received) { return {received.parts.begin(), received.parts.end()}; }

const std::vector<std::string> kSmall{"head", "", "body"},
    kLarge{std::string(3'000'000, 'a'), "b", std::string(9, 'c')};

}  // namespace

TEST(a_small_message_is_sent_at_once) {
  SocketPair pair;
  MessageSocket pool, worker;
  pool.open(pair.ends[0]);
  worker.open(pair.ends[1]);
  Received received;
  CHECK(worker.read(received.make) == Arrival::kPartial && worker.is_reading());
  pool.post(bytes_of(kSmall));
  CHECK(!pool.is_writing());
  CHECK(worker.read(received.make) == Arrival::kWhole && !worker.is_reading());
  CHECK(parts_of(received) == kSmall);
}

TEST(a_large_message_goes_on_when_the_worker_reads) {
  SocketPair pair;
  MessageSocket pool, worker;
  pool.open(pair.ends[0]);
  worker.open(pair.ends[1]);
  {
    const std::vector<std::string> parts = kLarge;  // freed before the message is sent, so `post` must copy the rest
    pool.post(bytes_of(parts));
  }
  pool.post(bytes_of(kSmall));
  CHECK(pool.is_writing());
  Received large, small;
  while (worker.read(large.make) == Arrival::kPartial) pool.write_on();
  while (worker.read(small.make) == Arrival::kPartial) pool.write_on();
  CHECK(parts_of(large) == kLarge && parts_of(small) == kSmall && !pool.is_writing());
}

TEST(messages_that_are_held_are_sent_over_the_next_socket) {
  SocketPair pair;
  MessageSocket pool, worker;
  pool.post(bytes_of(kSmall));  // dropped, because there is no socket
  pool.hold();
  pool.post(bytes_of(kLarge));
  CHECK(!pool.is_writing());
  pool.open(pair.ends[0]);
  worker.open(pair.ends[1]);
  Received received;
  while (worker.read(received.make) == Arrival::kPartial) pool.write_on();
  CHECK(parts_of(received) == kLarge);
}

TEST(what_a_dead_worker_has_sent_is_received) {
  SocketPair pair;
  MessageSocket pool, worker;
  pool.open(pair.ends[0]);
  worker.open(pair.ends[1]);
  worker.post(bytes_of(kSmall));
  pair.close_other();
  pool.post(bytes_of(kLarge));  // the worker is gone: the message is lost without an error
  CHECK(!pool.is_writing());
  Received whole, none;
  CHECK(pool.read(whole.make) == Arrival::kWhole && parts_of(whole) == kSmall);
  CHECK(pool.read(none.make) == Arrival::kLost && !pool.is_reading());
}

TEST(bytes_that_are_no_message_are_refused) {
  SocketPair pair;
  MessageSocket pool;
  pool.open(pair.ends[0]);
  Received received;
  const std::string words = "hello, world, says a simulator";
  CHECK_EQ(write(pair.ends[1], words.data(), words.size()), static_cast<ssize_t>(words.size()));
  CHECK(pool.read(received.make) == Arrival::kNonsense);
}

TEST(another_socket_begins_with_another_message) {
  SocketPair before, after;
  MessageSocket pool, worker;
  pool.open(before.ends[0]);
  CHECK_EQ(write(before.ends[1], MessageSocket::kMark.data(), 5), 5);
  Received lost, received;
  CHECK(pool.read(lost.make) == Arrival::kPartial);
  pool.open(after.ends[0]);
  CHECK(!pool.is_reading() && pool.moved() == Clock::time_point{});
  worker.open(after.ends[1]);
  worker.post(bytes_of(kSmall));
  CHECK(pool.read(received.make) == Arrival::kWhole && parts_of(received) == kSmall);
}

#endif
