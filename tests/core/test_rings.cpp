// Tests that records and blobs are read whole, once and in order, for every capacity, when counters wrap around, and
// across the end of a ring; and that a refused blob writes nothing.
#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <thread>

#include "check.hpp"
#include "ipc/blob_ring.hpp"
#include "ipc/ring.hpp"
#include "random.hpp"
#include "record.hpp"
#include "shared_ring.hpp"
#include "trials.hpp"

using namespace remuda;

namespace {

// Calls `body` with rings of all capacities. In some of them, the counters pass 2^32 or 2^31 in the middle of a test.
template <class Body>
void for_every_ring(Body body) {
  for (std::uint32_t capacity : {1, 2, 4, 8, 64, 1024})
    for (std::uint32_t count : {0U, 0xffffffffU, 0U - capacity, 1U - capacity, 0x7fffffffU})
      body(SharedRing<Record>(capacity, count));
}

using Blob = std::vector<std::vector<std::byte>>;  // its parts

class BlobRing {
 public:
  // Allocates no spare byte, so that the address sanitizer detects accesses beyond the ring's end.
  explicit BlobRing(std::uint64_t capacity)
      : capacity_(capacity), memory_(static_cast<std::byte*>(::operator new(sizeof(BlobHeader) + capacity, kLine))) {
    new (memory_.get()) BlobHeader{};
  }
  BlobWriter writer() { return {header(), capacity_}; }
  BlobReader reader() { return {header(), capacity_}; }
  // Overwrites the ring with random bytes, as faulty native code may do.
  void scribble(Random& random) {
    auto* bytes = reinterpret_cast<std::byte*>(header() + 1);
    for (std::uint64_t i = 0; i < capacity_; ++i)
      bytes[i] = static_cast<std::byte>(random.below(3) == 0 ? random.bits() : 0);
  }
  BlobHeader* header() { return reinterpret_cast<BlobHeader*>(memory_.get()); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, kLine); }
  };

  std::uint64_t capacity_;
  std::unique_ptr<std::byte, Delete> memory_;
};

Blob random_blob(Random& random, std::uint64_t largest_part) {
  Blob blob(random.below(5));
  for (auto& part : blob) {
    part.resize(random.below(largest_part + 1));
    for (std::byte& byte : part) byte = static_cast<std::byte>(random.bits());
  }
  return blob;
}

std::uint64_t size_of(const Blob& blob) {
  std::uint64_t size = 8 * (1 + blob.size());
  for (const auto& part : blob) size += part.size();
  return size;
}

std::uint64_t write(BlobWriter& writer, const Blob& blob) {
  return writer.write(std::vector<Bytes>(blob.begin(), blob.end()));
}

Blob read(BlobReader& reader) {
  Blob blob;
  for (std::uint64_t size : reader.sizes()) reader.get(blob.emplace_back(size).data(), size);
  reader.done();
  return blob;
}

}  // namespace

// -- records -----------------------------------------------------------------------------------------------

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

// -- blobs -------------------------------------------------------------------------------------------------

// Compares the ring with a queue: both return equal blobs, and the ring refuses a blob only if it has no room.
TEST(blobs_behave_like_a_queue_of_limited_size) {
  Random random(3);
  for (std::uint64_t capacity : {8, 33, 64, 257, 4096, 1 << 16}) {
    BlobRing ring(capacity);
    auto writer = ring.writer();
    auto reader = ring.reader();
    std::deque<Blob> queue;
    std::uint64_t taken = 0;
    for (int turn = 0; turn < 4000; ++turn) {
      if (random.coin()) {
        Blob blob = random_blob(random, capacity / 4);
        const bool fits = taken + size_of(blob) <= capacity;
        CHECK_EQ(write(writer, blob), fits ? size_of(blob) : 0);
        if (!fits) continue;
        taken += size_of(blob);
        queue.push_back(std::move(blob));
      } else if (!queue.empty()) {
        CHECK(read(reader) == queue.front());
        taken -= size_of(queue.front());
        queue.pop_front();
      }
    }
  }
}

// Two threads publish records with their blobs and read them at full speed. In a small ring, each thread often waits
// for the other, so an error in their order would show: a record or blob read before it is written, or overwritten
// before it is read.
TEST(two_threads_agree_on_every_record_and_its_blob) {
  auto expected = [](std::uint64_t n) {
    Random random(n);
    return random_blob(random, 64);
  };
  constexpr std::uint64_t kLargest = 8 * (1 + 4) + 4 * 64;
  for_every_ring([&](const SharedRing<Record>& records) {
    const Trials trials(500 * std::min<std::uint64_t>(40, records.capacity() + 1));
    std::atomic<bool> is_over{false};
    std::uint64_t written = 0, seen = 0;
    BlobRing blobs(kLargest + 13 * records.capacity());
    std::thread thread([&] {
      Random random(2);
      auto producer = records.producer();
      auto writer = blobs.writer();
      for (; trials.go_on(written); ++written) {
        if (producer.full()) producer.publish();
        while (producer.full()) std::this_thread::yield();
        while (write(writer, expected(written)) == 0) {
          producer.publish();  // the reader gives the room of published blobs back
          std::this_thread::yield();
        }
        producer.push(Record(written));
        if (random.below(4) == 0) producer.publish();
      }
      producer.publish();
      is_over = true;
    });
    auto consumer = records.consumer();
    auto reader = blobs.reader();
    Record record;
    for (; await_record(consumer, record, is_over); ++seen) {
      CHECK(record == Record(seen));
      CHECK(read(reader) == expected(seen));
    }
    thread.join();
    CHECK_EQ(seen, written);
  });
}

TEST(what_no_writer_can_have_written_is_refused) {
  Random random(31);
  for (int run = 0; run < 2000; ++run) {
    BlobRing ring(64 * (1 + random.below(20)));
    BlobReader reader = ring.reader();
    ring.scribble(random);
    try {
      for (std::uint64_t size : reader.sizes()) {
        std::vector<std::byte> part(size);
        reader.get(part.data(), size);
      }
    } catch (const std::length_error&) {
      continue;
    }
    reader.done();  // random bytes may form valid sizes
  }
}

TEST(a_reader_gone_mad_leaves_no_room) {
  BlobRing ring(256);
  ring.header()->consumed.store(1'000'000);
  BlobWriter writer = ring.writer();
  CHECK_EQ(write(writer, {std::vector<std::byte>(10)}), 0U);
}
