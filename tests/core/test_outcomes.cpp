// Tests the table of outcomes: each combination of a fate, a command, an episode and an autoreset mode has an entry.
#include <optional>

#include "check.hpp"
#include "pool/slots/outcomes.hpp"

using namespace remuda;

namespace {

constexpr Autoreset kModes[] = {Autoreset::kNextStep, Autoreset::kSameStep, Autoreset::kDisabled,
                                Autoreset::kBackground};
constexpr std::optional<Op> kIdle;
constexpr std::optional<Op> kOps[] = {kIdle, Op::kReset, Op::kStep, Op::kObserve, Op::kResetIntoRow};

// The outcomes in the modes of `kModes`, for an env that has had results.
struct Entry {
  std::optional<Op> op;
  bool is_over;
  Outcome outcomes[4];
};

constexpr Outcome kNothing = Outcome::kNothing, kAgain = Outcome::kResend, kLast = Outcome::kRepeatLast,
                  kEnd = Outcome::kEndEpisode, kInto = Outcome::kEndAndReset, kLater = Outcome::kEndLater,
                  kIntoLater = Outcome::kEndAndResetLater, kAwait = Outcome::kAwaitReset;

constexpr Entry kFailed[] = {
    {kIdle, false, {kLater, kIntoLater, kLater, kLater}},
    {kIdle, true, {kNothing, kNothing, kAwait, kNothing}},
    {Op::kReset, false, {kAgain, kAgain, kAgain, kAgain}},
    {Op::kReset, true, {kAgain, kAgain, kAgain, kAgain}},
    {Op::kStep, false, {kEnd, kInto, kEnd, kEnd}},
    {Op::kStep, true, {kAgain, kInto, kEnd, kEnd}},
    {Op::kObserve, false, {kEnd, kInto, kEnd, kEnd}},
    {Op::kObserve, true, {kLast, kLast, kLast, kLast}},
    {Op::kResetIntoRow, false, {kAgain, kAgain, kAgain, kAgain}},
    {Op::kResetIntoRow, true, {kAgain, kAgain, kAgain, kAgain}},
};

Outcome outcome(Fate fate, std::optional<Op> op, bool has_results, bool is_over, Autoreset mode) {
  return outcome_of(fate, {op, has_results, is_over}, mode);
}

// Calls `act` with each command, with and without results, in an episode that goes on or is over, in each mode.
template <class Act>
void each_case(Act act) {
  for (const std::optional<Op>& op : kOps)
    for (const bool has_results : {false, true})
      for (const bool is_over : {false, true})
        for (const Autoreset mode : kModes) act(op, has_results, is_over, mode);
}

}  // namespace

TEST(a_failed_env_has_the_outcomes_of_the_table) {
  for (const Entry& entry : kFailed)
    for (int mode = 0; mode < 4; ++mode)
      CHECK_EQ(outcome(Fate::kFailed, entry.op, true, entry.is_over, kModes[mode]), entry.outcomes[mode]);
}

TEST(only_without_a_command_does_it_matter_whether_there_were_results) {
  each_case([](auto op, bool, bool is_over, Autoreset mode) {
    for (const Fate fate : {Fate::kFailed, Fate::kReported}) {
      const Outcome before = outcome(fate, op, false, is_over, mode);
      CHECK_EQ(before, op ? outcome(fate, op, true, is_over, mode) : kNothing);
    }
  });
}

TEST(a_reported_fault_ends_the_reset_in_which_it_occurred) {
  each_case([](auto op, bool has_results, bool is_over, Autoreset mode) {
    const Outcome expected = op == Op::kReset ? kEnd : outcome(Fate::kFailed, op, has_results, is_over, mode);
    CHECK_EQ(outcome(Fate::kReported, op, has_results, is_over, mode), expected);
  });
}

TEST(the_other_fates_depend_on_the_command_only) {
  each_case([](auto op, bool has_results, bool is_over, Autoreset mode) {
    const auto is = [&](Fate fate, Outcome expected) {
      CHECK_EQ(outcome(fate, op, has_results, is_over, mode), op ? expected : kNothing);
    };
    is(Fate::kLost, Outcome::kDrop);
    is(Fate::kRaised, Outcome::kFail);
    is(Fate::kDying, kAgain);
    for (const Fate fate : {Fate::kRenewed, Fate::kResumed}) is(fate, op == Op::kObserve ? kLast : kAgain);
    is(Fate::kEnded, op == Op::kStep ? Outcome::kReset : kNothing);
  });
}

TEST(the_pool_makes_the_rows_that_report_an_end_or_the_last_observation) {
  for (const Outcome one : {kLast, kEnd, kLater}) CHECK_EQ(row_for(one), PoolRow::kLast);
  for (const Outcome one : {kInto, kIntoLater}) CHECK_EQ(row_for(one), PoolRow::kTerminal);
  for (const Outcome one : {kNothing, kAgain, kAwait, Outcome::kDrop, Outcome::kFail, Outcome::kReset})
    CHECK_EQ(row_for(one), PoolRow::kNone);
}
