// Tests that a part returns each result once, in the order of arrival, and that a frame is free once all its rows are
// freed; and that every division puts each slot into one part with its own row, and never uses a part number twice.
#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "planned_arena.hpp"
#include "pool/slots/part.hpp"
#include "pool/slots/parts.hpp"
#include "random.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kFrameRows = 10, kFrames = 4;

// Makes a part of the slots 2, 3, 5 and 8, at positions 4 to 7.
Part make_part() { return {{2, 3, 5, 8}, 4, kFrameRows, std::make_shared<FrameBook>(kFrames - 1), kFrames}; }

std::uint32_t free_frames(const Part& part) {
  return kFrames - 1 - static_cast<std::uint32_t>(std::popcount(part.book()->taken()));
}

constexpr std::uint32_t kSlots = 6;

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

TEST(a_command_to_all_has_a_frame_and_any_other_the_scratch_frame) {
  Part part = make_part(), whole = make_part();
  CHECK(part.send(3) == 0 && part.in_flight() == 3);
  CHECK(whole.send(4) == 1 && free_frames(whole) == 2);
  CHECK(whole.in_flight() == 4 && whole.pending() == 4 && whole.ready() == 0);
  Part full = make_part();
  while (full.book()->any_free()) full.book()->take();
  CHECK_EQ(full.send(4), 0u);
}

TEST(runs_are_taken_in_the_order_of_arrival_and_in_pieces) {
  Part part = make_part();
  const std::uint32_t row = part.send(4) * kFrameRows + 4;
  part.finish({5, row + 2, 2, 0});  // `finish` does not check that the run's slots are neighbours
  part.finish({2, row, 2, 0});
  CHECK(part.ready() == 4 && part.in_flight() == 0);
  const auto take = [&part](std::uint32_t limit) {
    auto taken = part.first_ready(limit);
    part.remove_ready(limit);
    return taken;
  };
  auto runs = take(1);
  CHECK(runs.size() == 1 && runs[0].slot == 5 && runs[0].row == row + 2 && runs[0].count == 1);
  runs = take(2);
  CHECK(runs.size() == 2 && runs[0].slot == 6 && runs[0].row == row + 3 && runs[0].count == 1);
  CHECK(runs[1].slot == 2 && runs[1].count == 1);
  runs = take(100);
  CHECK(runs.size() == 1 && runs[0].slot == 3 && runs[0].row == row + 1);
  CHECK(part.pending() == 0 && take(100).empty());
}

TEST(the_results_of_a_command_to_all_are_known_without_a_frame) {
  Part part = make_part();
  while (part.book()->any_free()) part.book()->take();
  const auto send_and_finish = [&](std::uint32_t count) {
    CHECK_EQ(part.send(count), 0u);
    for (std::uint32_t i = 0; i < count; ++i) part.finish({i, 4 + i, 1, 0});
  };
  send_and_finish(4);
  CHECK(part.are_of_all(part.first_ready(100)) && !part.is_whole_frame(part.first_ready(100)));
  CHECK(!part.are_of_all(part.first_ready(3)));
  part.remove_ready(4);
  send_and_finish(3);
  send_and_finish(1);
  CHECK(!part.are_of_all(part.first_ready(100)));
}

TEST(a_frame_is_whole_when_all_of_its_rows_are_there) {
  Part part = make_part();
  const std::uint32_t row = part.send(4) * kFrameRows + 4;
  CHECK(part.is_whole_frame(std::vector<Run>{{2, row, 2, 0}, {5, row + 2, 2, 0}}));
  CHECK(!part.is_whole_frame(std::vector<Run>{{2, row, 2, 0}, {5, row + 2, 1, 0}}));
  CHECK(!part.is_whole_frame(std::vector<Run>{{2, row, 2, 0}, {5, row + kFrameRows + 2, 2, 0}}));  // rows of two frames
  CHECK(!part.is_whole_frame(std::vector<Run>{{2, 4, 4, 0}}));                                     // the scratch frame
  CHECK(!part.is_whole_frame(std::vector<Run>{}));
}

TEST(a_frame_goes_back_with_its_last_row_or_its_lease) {
  Part part = make_part();
  const std::uint32_t row = part.send(4) * kFrameRows + 4;
  part.free_rows(row + 1, 2);
  part.drop(row);
  CHECK(free_frames(part) == 2 && part.in_flight() == 3);
  part.free_rows(row + 3, 1);
  CHECK_EQ(free_frames(part), 3u);

  const std::uint32_t lent = part.send(4);
  part.lend(lent * kFrameRows + 4);
  CHECK_EQ(free_frames(part), 2u);
  part.book()->give_back(part.number_in_book(lent * kFrameRows + 4));
  CHECK_EQ(free_frames(part), 3u);
}

TEST(rows_in_another_order) {
  const auto are = [](const std::vector<Run>& runs, const std::vector<Run>& expected) {
    const auto tie = [](const Run& run) { return std::tie(run.slot, run.row, run.count, run.flags); };
    return std::ranges::equal(runs, expected, {}, tie, tie);
  };
  // slots 3 and 4, then slot 1
  CHECK(are(in_order({{3, 13, 2, 0}, {1, 11, 1, 7}}, {4, 1, 3}, 1), {{4, 14, 1, 0}, {1, 11, 1, 7}, {3, 13, 1, 0}}));
  // vector envs
  CHECK(are(in_order({{0, 10, 4, 0}, {4, 14, 2, 7}}, {4, 5, 2, 3, 0, 1}, 2),
            {{4, 14, 2, 7}, {2, 12, 2, 0}, {0, 10, 2, 0}}));
}

TEST(no_slot_and_no_row_is_ever_lost) {
  Random random(5);
  Part part = make_part();
  for (int turn = 0; turn < 3000; ++turn) {
    const bool all = random.coin();
    const std::uint32_t count = all ? 4 : static_cast<std::uint32_t>(random.between(1, 3));
    const std::uint32_t row = part.send(count) * kFrameRows + 4;
    std::uint32_t finished = 0;
    while (finished < count) {
      const auto n = static_cast<std::uint32_t>(random.between(1, count - finished));
      part.finish({finished, row + finished, n, 0});
      finished += n;
    }
    std::uint32_t seen = 0;  // one bit for each slot
    while (part.ready() != 0) {
      const auto limit = static_cast<std::uint32_t>(random.between(1, 5));
      const auto runs = part.first_ready(limit);
      part.remove_ready(limit);
      for (const Run& run : runs) {
        for (std::uint32_t i = 0; i < run.count; ++i) {
          CHECK_EQ(run.row, row + run.slot);
          CHECK_EQ(seen >> (run.slot + i) & 1, 0u);
          seen |= 1U << (run.slot + i);
        }
        part.free_rows(run.row, run.count);
      }
    }
    CHECK_EQ(seen, (1U << count) - 1);
    CHECK(part.pending() == 0 && free_frames(part) == kFrames - 1);
  }
}

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
