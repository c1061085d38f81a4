// Tests that records are read whole, once and in order, for every capacity, and when the counters wrap around.
#include <algorithm>
#include <deque>
#include <thread>

#include "check.hpp"
#include "ipc/ring.hpp"
#include "random.hpp"
#include "record.hpp"
#include "shared_ring.hpp"

using namespace remuda;

namespace {

// Calls `body` with rings of all capacities. In some of them, the counters pass 2^32 or 2^31 in the middle of a test.
template <class Body>
void for_every_ring(Body body) {
  for (std::uint32_t capacity : {1, 2, 4, 8, 64, 1024})
    for (std::uint32_t count : {0U, 0xffffffffU, 0U - capacity, 1U - capacity, 0x7fffffffU})
      body(SharedRing<Record>(capacity, count));
}

}  // namespace

// Compares the ring with a queue, in a random order of pushes, changes, publications, pops, and new ends.
TEST(it_behaves_like_a_queue) {
  Random random(1);
  for_every_ring([&](const SharedRing<Record>& ring) {
    auto producer = ring.producer();
    auto consumer = ring.consumer();
    std::deque<std::uint64_t> visible, pushed;
    std::uint64_t next = 0;
    Record record;
    for (int turn = 0; turn < 3000; ++turn) {
      CHECK_EQ(producer.unpublished() == nullptr, pushed.empty());
      switch (random.below(5)) {
        case 0:
          CHECK_EQ(producer.full(), visible.size() + pushed.size() == ring.capacity());
          if (producer.full()) break;
          pushed.push_back(next);
          producer.push(Record(next++));
          break;
        case 1:
          producer.publish();
          visible.insert(visible.end(), pushed.begin(), pushed.end());
          pushed.clear();
          break;
        case 2:
          if (pushed.empty()) break;
          pushed.back() = next;
          *producer.unpublished() = Record(next++);
          break;
        case 3:
          CHECK_EQ(consumer.empty(), visible.empty());
          CHECK_EQ(consumer.pop(record), !visible.empty());
          if (visible.empty()) break;
          CHECK(record == Record(visible.front()));
          visible.pop_front();
          break;
        case 4:
          if (pushed.empty()) producer = ring.producer();
          consumer = ring.consumer();
      }
    }
  });
}

// Two threads push and pop at full speed. In a small ring, each thread often waits for the other, so an error in their
// order would show: a record read before it is written, or overwritten before it is read.
TEST(two_threads_agree_on_every_record) {
  for_every_ring([](const SharedRing<Record>& ring) {
    const std::uint64_t total = std::min<std::uint64_t>(20'000, 500 * (ring.capacity() + 1));
    std::thread thread([&] {
      Random random(2);
      auto producer = ring.producer();
      for (std::uint64_t i = 0; i < total; ++i) {
        if (producer.full()) producer.publish();
        while (producer.full()) std::this_thread::yield();
        producer.push(Record(i));
        if (random.below(4) == 0) producer.publish();
      }
      producer.publish();
    });
    auto consumer = ring.consumer();
    Record record;
    for (std::uint64_t i = 0; i < total; ++i) {
      while (!consumer.pop(record)) std::this_thread::yield();
      CHECK(record.whole());
      CHECK_EQ(record.sequence, i);
    }
    thread.join();
    CHECK(consumer.empty());
  });
}
