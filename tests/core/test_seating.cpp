// Tests that every env either backs one slot or is queued once, and that slots take spares in the order of their
// commands.
#include <set>
#include <vector>

#include "check.hpp"
#include "pool/slots/seating.hpp"
#include "random.hpp"

using namespace remuda;

TEST(a_slot_takes_the_spare_that_has_waited_longest) {
  Seating seating(2, 4);
  CHECK_EQ(seating.slot_of(2), Seating::kNoSlot);
  CHECK_EQ(seating.swap_in_spare(1), 1u);
  CHECK_EQ(seating.env_of(1), 2u);
  CHECK_EQ(seating.slot_of(2), 1u);
  CHECK_EQ(seating.slot_of(1), Seating::kNoSlot);
  CHECK_EQ(seating.swap_in_spare(0), 0u);
  CHECK_EQ(seating.env_of(0), 3u);
  CHECK_EQ(seating.swap_in_spare(0), 3u);
  CHECK_EQ(seating.env_of(0), 1u);  // env 1 left its slot first
}

TEST(envs_are_never_lost_nor_doubled) {
  Random random(3);
  CHECK(!Seating(3, 3).has_spares());
  for (std::uint32_t spares : {1, 2, 7}) {
    Seating seating(5, 5 + spares);
    for (int turn = 0; turn < 1000; ++turn) {
      seating.swap_in_spare(static_cast<std::uint32_t>(random.below(5)));
      std::set<std::uint32_t> seated;
      for (std::uint32_t slot = 0; slot < 5; ++slot) {
        CHECK(seated.insert(seating.env_of(slot)).second);
        CHECK_EQ(seating.slot_of(seating.env_of(slot)), slot);
      }
      std::uint32_t waiting = 0;
      for (std::uint32_t env = 0; env < 5 + spares; ++env) waiting += seating.slot_of(env) == Seating::kNoSlot;
      CHECK_EQ(waiting, spares);
    }
    seating.seat_in_order();
    for (std::uint32_t slot = 0; slot < 5; ++slot) CHECK_EQ(seating.env_of(slot), slot);
    seating.swap_in_spare(4);
    CHECK_EQ(seating.env_of(4), 5u);
  }
}

TEST(slots_are_served_in_the_order_of_sending_once_no_earlier_step_is_open) {
  Seating seating(4, 5);
  CHECK(!seating.anyone_asks());
  seating.ask_for_spare(2, 30);
  seating.ask_for_spare(0, 10);
  CHECK(seating.take_due(5).empty());
  CHECK(seating.take_due(20) == (std::vector<std::uint32_t>{0}));
  CHECK(seating.anyone_asks());
  seating.ask_for_spare(1, 20);
  CHECK(seating.take_due(~std::uint64_t{0}) == (std::vector<std::uint32_t>{1, 2}));
  CHECK(!seating.anyone_asks());
}
