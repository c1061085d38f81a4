// Tests that a part returns each result once, however the results arrive and are taken, and that a frame is free once
// all its rows are freed. Python's tests have the other rules of parts.
#include <bit>
#include <memory>

#include "check.hpp"
#include "pool/slots/part.hpp"
#include "random.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kFrameRows = 10, kFrames = 4;

// Makes a part of the slots 2, 3, 5 and 8, at positions 4 to 7.
Part make_part() { return {{2, 3, 5, 8}, 4, kFrameRows, std::make_shared<FrameBook>(kFrames - 1), kFrames}; }

std::uint32_t free_frames(const Part& part) {
  return kFrames - 1 - static_cast<std::uint32_t>(std::popcount(part.book()->taken()));
}

}  // namespace

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
