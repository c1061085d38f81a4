// Tests that one thread at a time has the turn, that the right calls wait, and that no wait lasts for ever. Python's
// tests have the calls that are refused in the middle of another, and beside another thread's.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pool/hub/emission.hpp"
#include "pool/hub/turn.hpp"
#include "waiting.hpp"

using namespace remuda;
using Kind = Turn::Kind;
using Entry = Turn::Entry;

namespace {

constexpr Turn::Thread kCaller = 1, kSupervisor = 2, kOther = 3, kLogger = 4;
constexpr Nanoseconds kMoment = std::chrono::milliseconds(1);

// A call that a test makes in the name of a thread.
struct Call {
  Call(Turn& turn, Turn::Thread thread, Kind kind = Kind::kOutside, Turn::PartNumber part = {})
      : turn(turn), kind(kind), thread(thread), entry(turn.enter(kind, thread, part, is_outermost)) {}
  Turn::Ending end() { return turn.leave(kind, thread, is_outermost); }

  Turn& turn;
  const Kind kind;
  const Turn::Thread thread;
  bool is_outermost = false;
  const Entry entry;
};

struct Counted {
  Turn::Close close() {
    return [this] { ++count; };
  }
  int count = 0;
};

Turn::Closing begin_close(Turn& turn, Counted& closes, Turn::Thread thread) {
  bool is_in_call;
  return turn.begin_close(closes.close(), thread, is_in_call);
}

}  // namespace

TEST(a_thread_that_waits_in_vain_withdraws_and_closes_if_its_call_is_the_last) {
  Turn turn;
  Counted closes;
  Call first(turn, kCaller, Kind::kOutside, 0);
  Call(turn, kOther, Kind::kOutside, 1);
  CHECK_EQ(Call(turn, kOther).entry, Entry::kInMiddle);  // a signal handler while it waits
  turn.withdraw(kOther);
  CHECK(!turn.any_call_besides(kCaller, {}));
  CHECK(turn.is_holder(kCaller));
  CHECK_EQ(Call(turn, kOther, Kind::kOutside, 1).entry, Entry::kMustWait);
  CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kDeferred);
  CHECK(!first.end().close);
  CHECK(turn.withdraw(kOther).close);
}

TEST(a_decision_waits_and_refuses_no_call) {
  Turn turn;
  Call step(turn, kCaller);
  Call decision(turn, kSupervisor, Kind::kDecision);
  CHECK_EQ(decision.entry, Entry::kMustWait);
  CHECK(!turn.any_call_besides(kCaller, {}));
  {
    Turn::Absence sleep(turn, kCaller);
    CHECK(turn.await(Kind::kDecision, kSupervisor, kMoment));
    CHECK(!sleep.end(kMoment));  // the decision holds the turn
    Call within(turn, kSupervisor, Kind::kWithin);
    CHECK_EQ(within.entry, Entry::kEntered);
    within.end();
    CHECK_EQ(Call(turn, kSupervisor).entry, Entry::kInMiddle);
    decision.end();
    CHECK(sleep.end(kMoment));
  }
  CHECK(turn.is_holder(kCaller));
  CHECK_EQ(Call(turn, kCaller).entry, Entry::kInMiddle);  // the call goes on after its sleep
  step.end();
}

TEST(a_thread_that_does_not_get_the_turn_again_leaves_without_it_and_still_closes) {
  Turn turn;
  Counted closes;
  Call series(turn, kCaller, Kind::kSeries);
  Call step(turn, kCaller);
  Call decision(turn, kSupervisor, Kind::kDecision);
  {
    Turn::Absence sleep(turn, kCaller);
    CHECK(turn.await(Kind::kDecision, kSupervisor, kMoment));
    CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kDeferred);
  }  // Ctrl-C ends the wait for the turn
  CHECK(!turn.is_holder(kCaller));
  CHECK(!step.end().close);
  CHECK(series.end().close);
  CHECK(turn.is_holder(kSupervisor));
  decision.end();
  turn.note_closed();
  Call next(turn, kCaller);
  CHECK_EQ(next.entry, Entry::kEntered);
  next.end();
}

TEST(code_that_a_call_runs_outside_may_call_and_its_close_waits_for_that_call) {
  Turn turn;
  Counted closes;
  Call step(turn, kCaller);
  {
    Turn::Absence outside(turn, kCaller, true);
    Call inner(turn, kCaller);
    CHECK_EQ(inner.entry, Entry::kEntered);
    CHECK(inner.is_outermost);
    CHECK_EQ(Call(turn, kCaller).entry, Entry::kInMiddle);
    CHECK_EQ(Call(turn, kOther).entry, Entry::kOtherThread);
    inner.end();
    CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kDeferred);
    Call last(turn, kCaller);
    const Turn::Ending ending = last.end();
    CHECK(ending.is_closing && !ending.close);
    CHECK(outside.end(kMoment));
  }
  CHECK(step.end().close);
}

TEST(calls_of_the_log_thread_refuse_no_call) {
  Turn turn;
  turn.set_log_thread(kLogger);
  Call log(turn, kLogger);
  Call step(turn, kCaller);
  CHECK_EQ(step.entry, Entry::kMustWait);
  log.end();
  CHECK(turn.await(Kind::kOutside, kCaller, kMoment));
  Call later(turn, kLogger);
  CHECK_EQ(later.entry, Entry::kMustWait);
  step.end();
  CHECK(turn.await(Kind::kOutside, kLogger, kMoment));
  later.end();
}

TEST(the_last_call_that_ends_closes) {
  Turn turn;
  Counted closes;
  CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kNow);  // no call is running
  turn.note_closed();
  Call first(turn, kCaller, Kind::kOutside, 0), second(turn, kOther, Kind::kOutside, 1);
  CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kDeferred);
  CHECK_EQ(begin_close(turn, closes, kLogger), Turn::Closing::kDeferred);
  CHECK(turn.is_closing());
  Turn::Ending ending = first.end();
  CHECK(ending.is_closing && !ending.close);
  CHECK(!turn.await_close(kMoment));
  CHECK(turn.await(Kind::kOutside, kOther, kMoment));
  ending = second.end();
  CHECK(ending.is_closing && ending.close);
  CHECK(!turn.is_closing());
  CHECK(!turn.await_close(kMoment));  // it runs
  ending.close();
  turn.note_closed();
  CHECK(turn.await_close(kMoment));
  CHECK_EQ(closes.count, 1);
}

TEST(while_a_close_runs_only_its_thread_and_decisions_enter) {
  Turn turn;
  Counted closes;
  CHECK_EQ(begin_close(turn, closes, kCaller), Turn::Closing::kNow);
  CHECK_EQ(Call(turn, kOther).entry, Entry::kClosing);
  CHECK_EQ(begin_close(turn, closes, kOther), Turn::Closing::kRunning);
  Call decision(turn, kSupervisor, Kind::kDecision);
  CHECK_EQ(decision.entry, Entry::kEntered);
  decision.end();
  Call own(turn, kCaller);
  CHECK_EQ(own.entry, Entry::kEntered);
  own.end();
  turn.note_closed();
  Call later(turn, kOther);
  CHECK_EQ(later.entry, Entry::kEntered);
  later.end();
}

TEST(many_threads_never_have_the_turn_together) {
  Turn turn;
  std::atomic<int> inside{0};
  int counted = 0;  // only the holder of the turn uses it
  std::vector<std::thread> threads;
  for (std::uint32_t part = 0; part < 4; ++part)
    threads.emplace_back([&, part] {
      const Turn::Thread thread = part + 1;
      for (int i = 0; i < 2000; ++i) {
        const Kind kind = part == 0 ? Kind::kDecision : Kind::kOutside;
        Call call(turn, thread, kind, part == 0 ? Turn::PartNumber() : part);
        while (call.entry == Entry::kMustWait && !turn.await(kind, thread, kMoment)) {
        }
        CHECK_EQ(++inside, 1);
        ++counted;
        --inside;
        {
          Turn::Absence sleep(turn, thread);
          if (i % 3 == 0) turn.announce();
          while (!sleep.end(kMoment)) {
          }
        }
        CHECK_EQ(++inside, 1);
        ++counted;
        --inside;
        call.end();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(counted, 4 * 2000 * 2);
}

TEST(news_before_the_wait_end_it) {
  Turn turn;
  const std::uint64_t news = turn.news();
  std::thread announcer([&] { turn.announce(); });
  while (turn.news() == news) turn.await_news(news, kForever);
  announcer.join();
}

TEST(one_thread_at_a_time_emits_and_looks_again_for_what_another_leaves) {
  Emission emission;
  CHECK(emission.begin(kCaller));
  CHECK(!emission.begin(kCaller));  // a log handler
  CHECK(!emission.begin(kLogger));
  CHECK(!emission.try_end());
  std::thread ender([&] { CHECK(emission.try_end()); });
  ender.join();
  CHECK(emission.begin(kLogger));
  emission.end();
}
