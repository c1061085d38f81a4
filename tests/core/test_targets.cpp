// Tests that the caller's slots are accepted in the caller's order, or all refused.
#include "check.hpp"
#include "pool/slots/targets.hpp"

using remuda::as_targets;
using remuda::Slots;

namespace {

using Ids = std::vector<std::int64_t>;
using Targets = std::vector<std::uint32_t>;

// Returns six slots. Slots 0 to 3 are in part 0, slots 4 and 5 in part 1.
Slots six() {
  Slots slots(6);
  for (std::uint32_t slot = 0; slot < 6; ++slot) slots.place(slot, slot / 4, slot);
  return slots;
}

}  // namespace

TEST(any_order_will_do) {
  CHECK(as_targets(Ids{2, 0, 3}, six(), 0, 1) == Targets({2, 0, 3}));
  CHECK(as_targets(Ids{5, 4}, six(), 1, 1) == Targets({5, 4}));
  CHECK(as_targets(Ids{}, six(), 0, 1) == Targets{});
}

TEST(what_there_is_not_is_refused) {
  const std::int64_t far = std::int64_t{1} << 32;  // the lower 32 bits are slot 0
  for (const Ids& ids : {Ids{6}, Ids{-1}, Ids{0, far}, Ids{-far}, Ids{1, 1}, Ids{0, 4}})
    CHECK(!as_targets(ids, six(), 0, 1));
}

TEST(vector_envs_are_whole_and_in_order) {
  CHECK(as_targets(Ids{2, 3, 0, 1}, six(), 0, 2) == Targets({2, 3, 0, 1}));
  for (const Ids& ids : {Ids{0}, Ids{1, 0}, Ids{1, 2}, Ids{0, 3}, Ids{0, 1, 2}, Ids{0, 2, 1, 3}})
    CHECK(!as_targets(ids, six(), 0, 2));
}
