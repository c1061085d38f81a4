// Tests that a process can be stopped or killed at any instruction: other processes read only whole records, and no
// wake-up is lost.
#include "check.hpp"
#include "os/platform.hpp"

#if REMUDA_LINUX

#include <vector>

#include "ipc/blob_ring.hpp"
#include "ipc/doorbell.hpp"
#include "ipc/ring.hpp"
#include "random.hpp"
#include "record.hpp"
#include "shared.hpp"
#include "stepped.hpp"
#include "waiting.hpp"

using namespace remuda;

namespace {

// -- rings -------------------------------------------------------------------------------------------------

// One direction of a worker's port: a ring of records and a ring of blobs.
struct Lane {
  static constexpr std::uint32_t kCapacity = 4;
  static constexpr std::uint64_t kBlobBytes = 500;

  RingHeader header;
  Record records[kCapacity];
  BlobHeader blob_header;
  std::byte blobs[kBlobBytes];
};

std::vector<std::byte> blob_of(std::uint64_t sequence) {
  std::vector<std::byte> blob(mixed(sequence) % 100);
  for (std::size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<std::byte>(mixed(sequence + i));
  return blob;
}

// Writes records, and publishes them one by one or several at once, at random.
void produce(Lane& lane, std::uint64_t total, std::uint64_t seed) {
  Random random(seed);
  RingProducer<Record> producer(&lane.header, Lane::kCapacity);
  BlobWriter writer(&lane.blob_header, Lane::kBlobBytes);
  for (std::uint64_t i = 0; i < total; ++i) {
    while (producer.full()) sched_yield();
    const auto blob = blob_of(i);
    const Bytes parts[] = {blob};
    while (writer.write(parts) == 0) sched_yield();
    producer.push(Record(i));
    if (random.coin() || producer.full()) producer.publish();
  }
  producer.publish();
}

}  // namespace

TEST(a_producer_stopped_at_any_instruction_has_published_whole_records_only) {
  if (!Stepped::is_possible()) return;
  constexpr std::uint64_t kTotal = 12;  // three times the ring's capacity
  Shared<Lane> lane;
  lane->header.published = lane->header.consumed = 0xfffffffa;
  RingConsumer<Record> records(&lane->header, Lane::kCapacity);
  BlobReader blobs(&lane->blob_header, Lane::kBlobBytes);
  std::uint64_t received = 0;
  // Reads all published records and their blobs, and checks every byte.
  const auto drain = [&] {
    Record record;
    while (records.pop(record)) {
      CHECK(record == Record(received));
      const auto sizes = blobs.sizes();
      CHECK_EQ(sizes.size(), 1U);
      std::vector<std::byte> blob(sizes[0]);
      blobs.get(blob.data(), blob.size());
      blobs.done();
      CHECK(blob == blob_of(received++));
    }
  };
  Stepped child([&] { produce(*lane, kTotal, 12); });
  do drain();
  while (child.step() != Stepped::State::kEnded);
  drain();
  CHECK_EQ(received, kTotal);
}

// -- doorbells ---------------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kStarts[] = {0, 0xffffffff};

void one_by_one(Bell& bell, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) notify(bell);
}

}  // namespace

// Stops the waiter after n instructions, for every n. Then rings the bell, and checks that the waiter continues and
// ends.
TEST(a_ring_at_any_instruction_of_the_waiter_reaches_it) {
  if (!Stepped::is_possible()) return;
  Bell other{};
  SpinPolicy none = no_spinning();
  wait(other, 1, Nanoseconds(0), none);  // runs the code that only the first wait of a process runs
  auto ring_beyond = [](Bell& bell, std::uint32_t count) { notify(bell, count + 1); };
  for (auto ring_it : {+ring_beyond, one_by_one}) {
    for (std::uint32_t start : kStarts) {
      at_every_instruction([&](int instructions) {
        Shared<Bell> bell;
        bell->notified = start;
        bell->target = start + 1000;  // the target of an earlier wait
        Stepped waiter([&] { wait_until(*bell, start + 2); }, [&] { return bell->sleeping != 0; });
        const auto state = waiter.steps(instructions);
        ring_it(*bell, 2);
        waiter.finish();
        return state == Stepped::State::kAsleep;
      });
    }
  }
}

// Stops the ringer after n instructions, for every n. Meanwhile the waiter falls asleep. Then the ringer continues, and
// must wake the waiter.
TEST(a_ringer_wakes_whoever_fell_asleep_at_any_of_its_instructions) {
  if (!Stepped::is_possible()) return;
  for (std::uint32_t start : kStarts) {
    at_every_instruction([&](int instructions) {
      Shared<Bell> bell;
      bell->notified = start;
      Stepped ringer([&] { notify(*bell); });
      const auto state = ringer.steps(instructions);
      Stepped waiter([&] { wait_until(*bell, start + 1); }, [] { return true; });
      waiter.run_until_asleep();
      ringer.finish();
      waiter.finish();
      return state == Stepped::State::kEnded;
    });
  }
}

#endif
