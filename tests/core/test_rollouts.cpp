// Tests that a held rollout has its rows to itself, that rows get memory when they are taken, and that later rollouts
// reuse them.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "check.hpp"
#include "os/platform.hpp"
#include "pool/rollouts/rollout.hpp"
#include "pool/rollouts/rollout_store.hpp"
#include "pool/slots/part.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kRows = 1000;
constexpr std::uint64_t kRowBytes = 4096;

// The number of allocations that still succeed; negative: all succeed.
int fails_after = -1;

struct Memory {
  Memory() = default;
  explicit Memory(std::vector<RolloutStore::Rows> columns)
      : store(std::make_shared<RolloutStore>(arena, kRows, std::move(columns))) {}

  std::shared_ptr<Arena> arena = Arena::create(64 + 2 * kRows * kRowBytes, {{0, 64}});
  std::shared_ptr<RolloutStore> store = std::make_shared<RolloutStore>(
      arena, kRows, std::vector<RolloutStore::Rows>{{4096, kRowBytes}, {4096 + kRows * kRowBytes - 4096, 64}});

  // Returns the memory that the arena's file takes.
  std::uint64_t bytes() const {
    struct stat status{};
    fstat(arena->fd(), &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
};

}  // namespace

// Not inlined: if GCC inlines only `new` or only `delete`, it warns of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (fails_after == 0) throw std::bad_alloc();
  if (fails_after > 0) --fails_after;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST(pieces_do_not_overlap_and_are_used_again_until_no_rows_are_left) {
  Memory memory;
  const HeldRows one = memory.store->take(100);
  std::optional<HeldRows> other = memory.store->take(50);
  const HeldRows third = memory.store->take(100);
  const std::uint32_t first = other->first();
  CHECK(one.first() + 100 <= first && first + 50 <= third.first());
  CHECK(memory.store->bytes_to_reserve(50) != 0);
  other.reset();
  CHECK_EQ(memory.store->bytes_to_reserve(50), 0u);
  CHECK_EQ(memory.store->take(50).first(), first);
  const HeldRows left = memory.store->take(20), right = memory.store->take(30);  // in the place of the free piece
  CHECK(left.first() == first && right.first() == first + 20);
  CHECK_THROWS(std::system_error, memory.store->take(kRows - 249));  // more than is left, which changes nothing
  CHECK_EQ(memory.store->take(kRows - 250).first(), third.first() + 100);
}

TEST(rows_are_given_back_in_any_thread_while_others_are_taken) {
  Memory memory;
  for (int i = 0; i < 200; ++i) {
    std::thread holder([rows = memory.store->take(10)] { CHECK(rows.first() < kRows); });
    const HeldRows one = memory.store->take(10), other = memory.store->take(20);
    CHECK(one.first() + 10 <= other.first() || other.first() + 20 <= one.first());
    holder.join();
  }
  CHECK_EQ(memory.store->take(kRows).first(), 0u);
}

#if REMUDA_LINUX

TEST(memory_is_there_where_it_was_taken_and_nowhere_else) {
  Memory memory;
  const std::uint64_t before = memory.bytes();
  const std::uint32_t first = memory.store->take(100).first();
  const std::uint64_t with_one = memory.bytes();  // the released piece keeps its memory
  CHECK(with_one >= before + 100 * kRowBytes && with_one < before + 110 * kRowBytes);
  CHECK_EQ(memory.store->take(100).first(), first);
  CHECK_EQ(memory.bytes(), with_one);
  const HeldRows more = memory.store->take(300);  // larger than the kept piece
  CHECK(memory.bytes() < before + 310 * kRowBytes);
}

TEST(a_column_that_is_added_has_memory_for_what_is_taken) {
  Memory memory;
  const HeldRows one = memory.store->take(100);
  const std::uint64_t before = memory.bytes(), free = 4096 + kRows * kRowBytes + 65536;
  memory.store->add_column({free, kRowBytes});
  CHECK(memory.bytes() >= before + 99 * kRowBytes);
}

#endif

TEST(steps_fill_frame_after_frame_each_slot_by_its_own_clock) {
  Memory memory;
  // The rollout has two slots, at positions 3 and 4.
  Rollout rollout(memory.store, 5000, 3, 2, 2);
  const std::uint32_t first = rollout.first_row();
  CHECK(rollout.wants(Op::kObserve, 3) && !rollout.wants(Op::kStep, 3) && !rollout.wants(Op::kReset, 3));
  CHECK_EQ(rollout.next_row(4), first + 1);
  rollout.advance(3);
  rollout.advance(4);
  CHECK(rollout.wants(Op::kStep, 3) && !rollout.wants(Op::kObserve, 3));
  CHECK_EQ(rollout.next_row(3), first + 2);
  rollout.advance(3);
  CHECK(!rollout.is_even(3, 2));
  CHECK_EQ(rollout.next_row(3), first + 4);
  CHECK_EQ(rollout.next_row(4), first + 3);
  rollout.advance(3);
  CHECK(!rollout.wants(Op::kStep, 3) && rollout.wants(Op::kStep, 4) && !rollout.is_full(3, 2));
  rollout.close(4);
  CHECK(rollout.is_full(3, 2));
}

TEST(a_part_keeps_its_rollout_until_what_fills_it_has_been_dealt_with) {
  Memory memory;
  Slots slots(2);
  slots.place(0, 0, 0);
  slots.place(1, 0, 1);
  Part part({0, 1}, 0, 2, std::make_shared<FrameBook>(3), 4);
  CHECK(part.send_to_rollout(Op::kStep, {0, 1}, slots).empty());
  auto rollout = std::make_shared<Rollout>(memory.store, 8, 0, 2, 1);
  std::weak_ptr<Rollout> held = rollout;
  const std::uint32_t first = rollout->first_row();
  part.begin(std::move(rollout), 6);
  const auto observed = part.send_to_rollout(Op::kObserve, {0, 1}, slots);
  CHECK(observed == (std::vector<std::uint32_t>{first, first + 1}));
  CHECK_EQ(part.next_action_row(1), first + 3 - 6);
  part.finish({0, first, 2, 0});
  CHECK(part.is_whole_frame(part.first_ready(2)));
  part.remove_ready(2);
  part.free_rows(first, 2);
  const auto stepped = part.send_to_rollout(Op::kStep, {1}, slots);
  CHECK(stepped == (std::vector<std::uint32_t>{first + 3}));
  // the rollout is full
  CHECK(part.send_to_rollout(Op::kStep, {1}, slots) == (std::vector<std::uint32_t>{Part::kNoRow}));
  part.end_rollout();
  CHECK(!held.expired() && part.is_filling());
  CHECK_THROWS(std::logic_error, part.begin(held.lock(), 6));
  CHECK_EQ(part.next_action_row(0), 0u);
  CHECK_EQ(part.action_row(first + 3, 1), first + 3 - 6);
  part.drop(first + 3);
  CHECK(held.expired());
  CHECK_EQ(memory.store->bytes_to_reserve(4), 0u);
}

TEST(rows_without_a_result_are_zeros_where_that_is_asked_for) {
  Memory memory({{4096, 8, true}, {4096 + 8 * kRows, 8, false}});
  const std::span rewards(memory.arena->at<std::uint64_t>(4096), 6), others(rewards.data() + kRows, 6);
  const auto are = [](std::span<std::uint64_t> numbers, std::initializer_list<std::uint64_t> expected) {
    return std::equal(numbers.begin(), numbers.end(), expected.begin(), expected.end());
  };
  const auto make_rollout = [&memory] { return std::make_shared<Rollout>(memory.store, 0, 0, 2, 2); };
  make_rollout();  // takes the rows and gives them back, so that they have memory
  for (const auto& column : {rewards, others}) std::fill(column.begin(), column.end(), 7);
  const auto rollout = make_rollout();
  CHECK(are(rewards, {0, 0, 0, 0, 0, 0}) && are(others, {7, 7, 7, 7, 7, 7}));
  std::fill(rewards.begin(), rewards.end(), 7);
  rollout->fill(2, 1);
  rollout->settle(2, 2);  // the result of row 3 was dropped
  CHECK(are(rewards, {7, 7, 7, 0, 7, 7}));
}

TEST(rows_are_given_back_where_a_rollout_cannot_be_made) {
  bool is_made = false;
  int failures = 0;
  while (!is_made) {
    Memory memory;
    fails_after = failures;
    try {
      const Rollout rollout(memory.store, 0, 0, 2, kRows / 2 - 1);
      is_made = true;
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    fails_after = -1;
    CHECK_EQ(memory.store->take(kRows).first(), 0u);
  }
  CHECK(failures >= 4);  // the list of pieces, the flag and the rollout's two vectors need memory
}
