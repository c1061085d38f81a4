// Tests that the number of workers with a turn is limited, and that waiting workers get turns in the order of their
// requests.
#include "check.hpp"
#include "pool/workers/running_limit.hpp"

using namespace remuda;

TEST(whoever_asks_beyond_the_limit_waits_in_line) {
  RunningLimit turns(4, 2);
  CHECK(turns.ask(3) && turns.ask(1));
  CHECK(!turns.any_waiting());
  CHECK(!turns.ask(2) && !turns.ask(0));
  CHECK(turns.any_waiting() && turns.has(1) && turns.has(3) && !turns.has(2));
  CHECK(!turns.next().has_value());  // no turn is free
  turns.end(3);
  CHECK_EQ(*turns.next(), 2u);
  CHECK(turns.ask(2));
  CHECK(!turns.next().has_value());
  turns.end(1);
  CHECK_EQ(*turns.next(), 0u);
  CHECK(!turns.any_waiting());
}

TEST(a_worker_has_one_place_in_line_and_one_turn) {
  RunningLimit turns(3, 1);
  CHECK(turns.ask(0) && turns.ask(0));
  CHECK(!turns.ask(1) && !turns.ask(1) && !turns.ask(2));
  turns.end(0);
  CHECK_EQ(*turns.next(), 1u);  // worker 1 does not take the turn, for example because it has died
  CHECK_EQ(*turns.next(), 2u);
  CHECK(!turns.next().has_value());
  turns.end(1);  // worker 1 had no turn, so this changes nothing
  CHECK(turns.ask(2) && !turns.ask(0));
}
