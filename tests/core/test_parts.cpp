// Tests that every division puts each slot into one part with its own row, and never uses a part number twice.
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/slots/parts.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kSlots = 6, kFrames = 4;

struct Pool {
  Pool() : slots(kSlots), memory(1, kSlots, kFrames), lendings(Lendings::make(memory.arena, kSlots)) {}

  std::uint32_t divide(std::vector<std::vector<std::uint32_t>> divisions) {
    return parts.divide(std::move(divisions), *lendings);
  }

  Slots slots;
  PlannedArena memory;
  std::shared_ptr<Lendings> lendings;
  Parts parts{slots, kFrames};
};

}  // namespace

TEST(slots_are_in_order_within_their_part_and_rows_go_part_by_part) {
  Pool pool;
  const std::uint32_t first = pool.divide({{4, 0, 2}, {5}, {3, 1}});
  CHECK(pool.parts.at(first).slots() == (std::vector<std::uint32_t>{0, 2, 4}));
  CHECK(pool.parts.at(first + 2).slots() == (std::vector<std::uint32_t>{1, 3}));
  const std::uint32_t positions[] = {0, 4, 1, 5, 2, 3};
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) CHECK_EQ(pool.slots[slot].position, positions[slot]);
  CHECK_EQ(pool.parts.number_of(5), first + 1);
  CHECK(&pool.parts.of(5) == &pool.parts.at(first + 1));
}

TEST(the_number_of_a_part_that_is_gone_stands_for_none) {
  Pool pool;
  std::uint32_t next = 0;
  for (std::uint32_t divisions = 1; divisions <= 3; ++divisions) {
    std::vector<std::vector<std::uint32_t>> slots(divisions);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) slots[slot % divisions].push_back(slot);
    CHECK_EQ(pool.divide(std::move(slots)), next);
    for (std::uint32_t number = 0; number < next; ++number) CHECK_THROWS(std::out_of_range, pool.parts.at(number));
    for (std::uint32_t i = 0; i < divisions; ++i) CHECK(pool.parts.has(next++));
    CHECK(!pool.parts.has(next) && !pool.parts.has(next - divisions - 1));
  }
}

TEST(nothing_is_divided_while_something_is_pending) {
  Pool pool;
  const std::uint32_t first = pool.divide({{0, 1, 2}, {3, 4, 5}});
  CHECK(!pool.parts.any_pending() && pool.parts.in_flight() == 0);
  pool.parts.at(first).send(3);
  pool.parts.at(first + 1).send(1);
  CHECK(pool.parts.any_pending() && pool.parts.in_flight() == 4);
  CHECK_THROWS(std::logic_error, pool.divide({{0, 1, 2, 3, 4, 5}}));
  CHECK(pool.parts.has(first + 1) && pool.parts.in_flight() == 4);
}

TEST(a_frame_that_is_still_held_is_lent_to_no_part_of_a_later_division) {
  Pool pool;
  Part& before = pool.parts.at(pool.divide({{0, 1, 2, 3, 4, 5}}));
  const auto book = before.book();
  const std::uint32_t held = before.send(kSlots) - 1;
  before.lend(held * kSlots + kSlots);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) before.finish({slot, slot, 1, 0});
  before.remove_ready(kSlots);
  const std::uint32_t first = pool.divide({{0, 1, 2}, {3, 4, 5}});
  for (std::uint32_t part : {first, first + 1})
    for (std::uint32_t i = 1; i < kFrames - 1; ++i) CHECK(pool.parts.at(part).book()->take() != held);
  CHECK(!pool.parts.at(first).book()->any_free());
  book->give_back(held);
  CHECK(pool.parts.at(first).book()->any_free() && pool.parts.at(first + 1).book()->any_free());
}
