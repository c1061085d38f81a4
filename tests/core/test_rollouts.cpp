// Tests that rollouts have rows of their own, which are given back in any thread, and if memory runs out, and that a
// column that is added has memory for them. Python's tests have the other rules of rollouts.
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "check.hpp"
#include "os/platform.hpp"
#include "pool/rollouts/rollout.hpp"
#include "pool/rollouts/rollout_store.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kRows = 1000;
constexpr std::uint64_t kRowBytes = 4096;

// The number of allocations that still succeed; negative: all succeed.
int fails_after = -1;

struct Memory {
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
