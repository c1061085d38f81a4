// Tests of the obstacles: each is set for one slot or env, and `Obstacles` reports whether there are any.
#include <stdexcept>

#include "check.hpp"
#include "pool/slots/obstacles.hpp"

using remuda::Obstacles;

TEST(slots_must_be_reset_at_first_and_whenever_that_is_required) {
  Obstacles obstacles(2, 3);
  CHECK(obstacles.any_must_reset() && obstacles.must_reset(0) && obstacles.must_reset(1));
  obstacles.note_reset(0);
  obstacles.note_reset(0);
  CHECK(!obstacles.must_reset(0) && obstacles.any_must_reset());
  obstacles.note_reset(1);
  CHECK(!obstacles.any_must_reset());
  obstacles.note_reset(1);
  obstacles.require_reset(1);
  obstacles.require_reset(1);
  CHECK(obstacles.any_must_reset() && obstacles.must_reset(1) && !obstacles.must_reset(0));
  obstacles.note_reset(1);
  CHECK(!obstacles.any_must_reset());
}

TEST(envs_are_lost_for_good) {
  Obstacles obstacles(1, 2);
  CHECK(!obstacles.any_lost() && !obstacles.is_lost(1));
  obstacles.lose(1);
  CHECK(obstacles.any_lost() && obstacles.is_lost(1) && !obstacles.is_lost(0));
}

TEST(faults_wait_until_they_are_told) {
  Obstacles obstacles(1, 1);
  CHECK(!obstacles.any_unraised());
  obstacles.set_unraised(true);
  CHECK(obstacles.any_unraised());
  obstacles.set_unraised(false);
  CHECK(!obstacles.any_unraised());
}

TEST(there_are_no_others) {
  Obstacles obstacles(1, 2);
  CHECK_THROWS(std::out_of_range, obstacles.require_reset(1));
  CHECK_THROWS(std::out_of_range, obstacles.lose(2));
}
