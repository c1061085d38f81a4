// Tests that the log returns what was written, until it is overwritten, and never anything else.
#include <string>
#include <vector>

#include "check.hpp"
#include "worker/episode_log.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kCapacity = 8;

struct Logged {
  Plan plan;
  std::shared_ptr<Arena> arena;
  EpisodeLog log;

  explicit Logged(std::uint64_t object_bytes = 0)
      : plan(make_plan(object_bytes)), arena(Arena::create(plan.bytes)), log(arena, plan) {}

  static Plan make_plan(std::uint64_t object_bytes) {
    Plan plan{1, 3, 3, 2, 4, 64, {4, 1}, std::vector<std::uint64_t>(kFirstLeaf, 8)};
    plan.log_entries = kCapacity;
    plan.log_object_bytes = object_bytes;
    plan.lay_out();
    return plan;
  }

  void step(std::uint32_t slot, std::uint32_t action) {
    std::memcpy(log.next_action(slot, 0), &action, sizeof action);
    *log.next_action(slot, 1) = static_cast<std::byte>(action);
    log.add(slot, Entry::kStep);
  }

  std::uint32_t action(std::uint32_t slot, std::uint64_t n) const {
    std::uint32_t action;
    std::memcpy(&action, arena->at<std::byte>(plan.log_actions[0]) + 4 * log.row_of(slot, n), sizeof action);
    CHECK(arena->at<std::byte>(plan.log_actions[1])[log.row_of(slot, n)] == static_cast<std::byte>(action));
    return action;
  }
};

Bytes bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

TEST(a_log_that_is_off_takes_no_room) {
  Plan plan{1, 3, 3, 2, 4, 64, {4, 1}, std::vector<std::uint64_t>(kFirstLeaf, 8)};
  plan.lay_out();
  CHECK(plan.bytes < Logged::make_plan(0).bytes);
  CHECK(!EpisodeLog(Arena::create(plan.bytes), plan).is_on());
}

TEST(the_latest_entries_of_each_slot_are_there) {
  Logged it;
  for (std::uint32_t n = 0; n < 3 * kCapacity; ++n)
    for (std::uint32_t slot = 0; slot < 3; ++slot) it.step(slot, 10 * n + slot);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    CHECK(it.log.entries(slot) == 3 * kCapacity);
    for (std::uint32_t n = 2 * kCapacity; n < 3 * kCapacity; ++n) {
      CHECK(it.log.kind(slot, n) == Entry::kStep);
      CHECK(it.action(slot, n) == 10 * n + slot);
    }
  }
}

TEST(the_last_two_beginnings_and_the_seeded_one_are_there) {
  Logged it;
  it.log.add(1, Entry::kMade);
  it.log.begin(1, Entry::kSeededReset, bytes("seeded"));
  for (const char* name : {"first", "second", "third"}) it.log.begin(1, Entry::kReset, bytes(name));
  CHECK(text(it.log.beginning(1, 1)) == "seeded");
  CHECK(it.log.beginning(1, 2).empty());
  CHECK(text(it.log.beginning(1, 3)) == "second");
  CHECK(text(it.log.beginning(1, 4)) == "third");
  CHECK(it.log.beginning(1, 0).empty());
  CHECK(it.log.beginning(0, 1).empty());
  it.log.begin(1, Entry::kSeededReset, bytes("again"));
  CHECK(it.log.beginning(1, 1).empty());
  CHECK(text(it.log.beginning(1, 5)) == "again");
}

TEST(a_beginning_that_is_too_long_is_none) {
  Logged it;
  it.log.begin(0, Entry::kSeededReset, bytes(std::string(sizeof(LogBeginning::text), 'x')));
  CHECK(it.log.beginning(0, 0).size() == sizeof(LogBeginning::text));
  it.log.begin(0, Entry::kSeededReset, bytes(std::string(sizeof(LogBeginning::text) + 1, 'x')));
  CHECK(it.log.beginning(0, 1).empty());
  CHECK(it.log.entries(0) == 2);
}

TEST(objects_come_one_after_another_until_there_is_no_room) {
  Logged it(64);
  auto put = [&](const std::string& one, const std::string& other) {
    const Bytes parts[] = {bytes(one), bytes(other)};
    it.log.put_objects(2, parts);
    it.step(2, 0);
  };
  put("ab", "");
  CHECK(it.log.objects(2).size() == 4 * 8 + 2);
  put("", "c");  // no room: the parts of the first action are discarded
  Bytes there = it.log.objects(2);
  CHECK(there.size() == 4 * 8 + 1);
  std::uint64_t numbers[4];
  std::memcpy(numbers, there.data(), sizeof numbers);
  CHECK(numbers[0] == 1 && numbers[1] == 2 && numbers[2] == 0 && numbers[3] == 1);
  CHECK(text(there.subspan(32)) == "c");
  put(std::string(100, 'x'), "");  // larger than the whole log
  CHECK(it.log.objects(2).empty());
  CHECK(it.log.objects(1).empty());
}

TEST(calls_count_from_when_the_env_was_made) {
  Logged it;
  it.log.count_call(0);
  it.log.count_call(0);
  CHECK(it.log.calls(0) == 2 && it.log.calls(1) == 0);
  it.log.add(0, Entry::kMade);
  CHECK(it.log.calls(0) == 0);
}
