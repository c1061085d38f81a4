// Tests of the ring of events from which traces are made.
#include <vector>

#include "check.hpp"
#include "pool/tracing/trace_log.hpp"

using namespace remuda;

namespace {

TraceEvent event(std::uint64_t begin) {
  TraceEvent event{};
  event.begin_ns = begin;
  return event;
}

std::vector<std::uint64_t> begins(const TraceLog& log) {
  std::vector<TraceEvent> events(log.size());
  log.copy(events.data());
  std::vector<std::uint64_t> begins;
  for (const TraceEvent& each : events) begins.push_back(each.begin_ns);
  return begins;
}

using Begins = std::vector<std::uint64_t>;

}  // namespace

TEST(events_come_back_in_their_order) {
  TraceLog log(3);
  CHECK(begins(log).empty());
  log.add(event(1));
  log.add(event(2));
  CHECK(begins(log) == Begins({1, 2}));
  log.add(event(3));
  CHECK(begins(log) == Begins({1, 2, 3}));
}

TEST(the_oldest_make_room) {
  TraceLog log(3);
  for (std::uint64_t n = 1; n <= 7; ++n) log.add(event(n));
  CHECK_EQ(log.size(), 3u);
  CHECK(begins(log) == Begins({5, 6, 7}));
}

TEST(a_log_that_grows_keeps_what_it_has) {
  TraceLog log(3);
  for (std::uint64_t n = 1; n <= 4; ++n) log.add(event(n));
  log.grow(2);
  CHECK_EQ(log.capacity(), 3u);
  log.grow(4);
  CHECK(begins(log) == Begins({2, 3, 4}));
  log.add(event(5));
  CHECK(begins(log) == Begins({2, 3, 4, 5}));
  log.add(event(6));
  CHECK(begins(log) == Begins({3, 4, 5, 6}));
}

TEST(one_event_is_room_enough) {
  TraceLog log(1);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    log.add(event(n));
    CHECK(begins(log) == Begins({n}));
  }
}
