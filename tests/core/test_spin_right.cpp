// Tests that one pool of a process has the right to spin, and that another pool gets the right only if the first one
// does not use it.
#include "check.hpp"
#include "pool/workers/spin_right.hpp"

using namespace remuda;

namespace {

constexpr Nanoseconds kMoment = std::chrono::milliseconds(1);

// The simulated time. `let_go` advances it until the right of the previous test's pool has expired.
Clock::time_point now = Clock::now();
void let_go() { now += 2 * SpinRight::kKept; }

}  // namespace

TEST(who_is_alone_has_it) {
  let_go();
  SpinRight right;
  for (int i = 0; i < 100; ++i) CHECK(right.ask(now += kMoment));
}

TEST(of_two_that_take_turns_one_has_it) {
  let_go();
  SpinRight train, evaluate;
  for (int i = 0; i < 100; ++i) {
    CHECK(train.ask(now += kMoment));
    CHECK(!evaluate.ask(now += kMoment));
  }
}

TEST(it_passes_to_the_one_that_is_used) {
  let_go();
  SpinRight train, evaluate;
  for (int i = 0; i < 3; ++i) {
    CHECK(train.ask(now));
    CHECK(!evaluate.ask(now + SpinRight::kKept - Nanoseconds(1)));
    CHECK(evaluate.ask(now += SpinRight::kKept));
    CHECK(!train.ask(now));
    CHECK(train.ask(now += SpinRight::kKept));
  }
}

TEST(one_that_is_gone_leaves_it_behind) {
  let_go();
  {
    SpinRight right;
    CHECK(right.ask(now));
  }
  SpinRight right;
  CHECK(!right.ask(now));
  CHECK(right.ask(now += SpinRight::kKept));
}
