// One memory for several processes: what one writes the other reads, what does not belong together is refused, and a
// producer that is killed at any instruction leaves whole records only.
#include "arena.hpp"

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "blob_ring.hpp"
#include "check.hpp"
#include "platform.hpp"
#include "random.hpp"
#include "record.hpp"
#include "ring.hpp"

#if REMUDA_LINUX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace remuda;

TEST(an_arena_is_zeros_after_its_header) {
  auto arena = Arena::create(10'000);
  CHECK_EQ(arena->bytes(), 10'000U);
  for (std::size_t i = sizeof(ArenaHeader); i < 10'000; ++i) CHECK(*arena->at<std::byte>(i) == std::byte{0});
}

TEST(an_arena_starts_on_a_cache_line) {
  for (std::size_t bytes : {100, 4096, 100'000, 10'000'000}) {
    auto arena = Arena::create(bytes);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(arena->at<std::byte>(0)) % 64, 0U);
  }
}

TEST(all_of_it_can_be_written) {
  for (std::size_t bytes : {100, 4096, 4097, 1'000'000}) {
    auto arena = Arena::create(bytes);
    std::memset(arena->at<std::byte>(0), 1, bytes);
  }
}

#if REMUDA_LINUX

namespace {

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) != -1;
  return count;
}

int mapped_arenas() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:remuda") != std::string::npos;
  return count;
}

// Runs `body` in a child, which ends without cleaning up; returns how it ended, as waitpid tells.
template <class Body>
pid_t start_child(Body body) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

int end_of(pid_t pid) {
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

}  // namespace

TEST(who_attaches_sees_what_the_creator_wrote_and_the_other_way_round) {
  auto arena = Arena::create(1 << 16);
  *arena->at<std::uint64_t>(4096) = 42;
  auto other = Arena::attach(arena->fd(), 1 << 16);
  CHECK(other->at<std::byte>(0) != arena->at<std::byte>(0));
  CHECK_EQ(*other->at<std::uint64_t>(4096), 42U);
  *other->at<std::uint64_t>(5000) = 43;
  CHECK_EQ(*arena->at<std::uint64_t>(5000), 43U);
}

TEST(another_process_can_attach) {
  auto arena = Arena::create(1 << 16);
  *arena->at<std::uint64_t>(4096) = 42;
  pid_t child = start_child([&] {
    auto attached = Arena::attach(arena->fd(), 1 << 16);
    CHECK_EQ(*attached->at<std::uint64_t>(4096), 42U);
    *attached->at<std::uint64_t>(5000) = 43;
  });
  CHECK_EQ(end_of(child), 0);
  CHECK_EQ(*arena->at<std::uint64_t>(5000), 43U);
}

TEST(an_attached_arena_outlives_its_creator) {
  auto arena = Arena::create(4096);
  *arena->at<std::uint64_t>(64) = 42;
  auto other = Arena::attach(arena->fd(), 4096);
  arena.reset();
  CHECK_EQ(*other->at<std::uint64_t>(64), 42U);
}

TEST(an_arena_of_another_build_is_refused) {
  auto arena = Arena::create(1 << 16);
  auto* header = arena->at<ArenaHeader>(0);
  const int mapped = mapped_arenas();
  auto attach = [&](std::size_t bytes = 1 << 16) { return Arena::attach(arena->fd(), bytes); };
  CHECK_THROWS(std::runtime_error, attach((1 << 16) - 64));
  CHECK_THROWS(std::runtime_error, attach((1 << 16) + 64));
  header->magic ^= 1;
  CHECK_THROWS(std::runtime_error, attach());
  header->magic ^= 1;
  header->version += 1;
  CHECK_THROWS(std::runtime_error, attach());
  header->version -= 1;
  header->bytes += 1;
  CHECK_THROWS(std::runtime_error, attach());
  header->bytes -= 1;
  CHECK_EQ(mapped_arenas(), mapped);
  CHECK(attach() != nullptr);
}

TEST(what_is_no_arena_is_refused) {
  CHECK_THROWS(std::system_error, Arena::attach(-1, 4096));
  int zeros = open("/dev/zero", O_RDWR);
  CHECK_THROWS(std::runtime_error, Arena::attach(zeros, 4096));
  close(zeros);
}

// In a child, with a limit of its own: asking for more than the machine has would set off the kernel's killer.
TEST(memory_that_is_not_there_is_an_error_at_once) {
  pid_t child = start_child([] {
    const int descriptors = open_descriptors();
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(Arena::create(1 << 20) != nullptr);
    CHECK_THROWS(std::system_error, Arena::create((1 << 20) + 1));
    CHECK_THROWS(std::system_error, Arena::create(0));
    CHECK_EQ(open_descriptors(), descriptors);
  });
  CHECK_EQ(end_of(child), 0);
}

TEST(nothing_is_left_behind) {
  const int descriptors = open_descriptors(), mapped = mapped_arenas();
  auto arena = Arena::create(1 << 20);
  CHECK_EQ(open_descriptors(), descriptors + 1);
  auto other = Arena::attach(arena->fd(), 1 << 20);
  CHECK_EQ(open_descriptors(), descriptors + 1);
  CHECK_EQ(mapped_arenas(), mapped + 2);
  arena->close_fd();
  arena->close_fd();
  CHECK_EQ(arena->fd(), -1);
  CHECK_EQ(open_descriptors(), descriptors);
  arena.reset();
  other.reset();
  CHECK_EQ(mapped_arenas(), mapped);
}

namespace {

// The arena of the test below: one ring of records, and beside it one of blobs.
struct Line {
  explicit Line(const Arena& arena)
      : records{arena.at<RingHeader>(64), kCapacity},
        received{arena.at<RingHeader>(64), kCapacity},
        writer{arena.at<BlobHeader>(kBlobs), kBlobBytes},
        reader{arena.at<BlobHeader>(kBlobs), kBlobBytes} {}

  static constexpr std::uint32_t kCapacity = 16;
  static constexpr std::uint64_t kBlobBytes = 3000;
  static constexpr std::uint64_t kBlobs = 64 + ring_bytes<Record>(kCapacity);
  static constexpr std::size_t kBytes = kBlobs + sizeof(BlobHeader) + kBlobBytes;

  RingProducer<Record> records;
  RingConsumer<Record> received;
  BlobWriter writer;
  BlobReader reader;
};

std::vector<std::byte> blob_of(std::uint64_t sequence) {
  std::vector<std::byte> blob(mixed(sequence) % 200);
  for (std::size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<std::byte>(mixed(sequence + i));
  return blob;
}

[[noreturn]] void produce_for_ever(Line& line, std::uint64_t seed) {
  Random random(seed);
  for (std::uint64_t i = 0;; ++i) {
    while (line.records.full()) sched_yield();
    const auto blob = blob_of(i);
    const Bytes parts[] = {blob};
    while (line.writer.write(parts) == 0) sched_yield();
    line.records.push(Record(i));
    if (random.coin()) line.records.publish();
    if (line.records.full()) line.records.publish();
  }
}

void receive(Line& line, const Record& record, std::uint64_t sequence) {
  CHECK(record.whole());
  CHECK_EQ(record.sequence, sequence);
  const auto sizes = line.reader.sizes();
  CHECK_EQ(sizes.size(), 1U);
  std::vector<std::byte> blob(sizes[0]);
  line.reader.get(blob.data(), blob.size());
  line.reader.done();
  CHECK(blob == blob_of(sequence));
}

}  // namespace

TEST(a_producer_killed_at_any_instruction_leaves_whole_records_only) {
  Random random(11);
  for (std::uint64_t run = 0; run < 1000; ++run) {
    auto arena = Arena::create(Line::kBytes);
    const auto near_the_edge = static_cast<std::uint32_t>(0U - random.below(100));
    arena->at<RingHeader>(64)->published = near_the_edge;
    arena->at<RingHeader>(64)->consumed = near_the_edge;
    Line line(*arena);
    pid_t child = start_child([&] { produce_for_ever(line, run); });

    // It dies after a random number of records and a moment more, at whatever it does then.
    Record record;
    std::uint64_t sequence = 0;
    for (const std::uint64_t last = random.between(1, 200); sequence < last; ++sequence) {
      while (!line.received.pop(record)) sched_yield();
      receive(line, record, sequence);
    }
    idle(random.below(2000));
    kill(child, SIGKILL);
    int status = end_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    while (line.received.pop(record)) receive(line, record, sequence++);
    CHECK(line.received.empty());
  }
}

#else

TEST(without_memfd_an_arena_cannot_be_shared) {
  auto arena = Arena::create(4096);
  CHECK_EQ(arena->fd(), -1);
  CHECK_THROWS(std::runtime_error, Arena::attach(0, 4096));
}

#endif
