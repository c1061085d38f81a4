// Tests that a log goes on from before a command that the pool takes back, as if the command had never begun.
#include <string_view>

#include "check.hpp"
#include "worker/episode_log.hpp"

using namespace remuda;

namespace {

constexpr std::uint32_t kEnv = 1;

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// A worker that resets and steps one env, and the pool that reads its log.
struct World {
  World() {
    Plan plan{.workers = 1, .slots = 2, .envs = 2, .frames = 2, .ring_capacity = 8, .blob_bytes = 64};
    plan.action_bytes = {8};
    plan.column_bytes.assign(kFirstLeaf, 8);
    plan.log_entries = 8;
    plan.log_object_bytes = 128;
    plan.resumes = true;
    plan.lay_out();
    arena = Arena::create(plan.bytes);
    log = std::make_unique<EpisodeLog>(arena, plan);
    progress = &arena->at<Progress>(plan.progress)[kEnv];
    log->add(kEnv, Entry::kMade);
  }
  void begin(std::uint64_t sequence) { log->begin_command(kEnv, sequence, *progress); }
  void reset(std::string_view beginning) {
    progress->begin_episode();
    log->begin(kEnv, Entry::kReset, bytes_of(beginning));
  }
  void report(std::uint64_t episodes) {
    log->note_episode(kEnv, episodes);
    progress->needs_reset = 0;
  }
  void step() {
    log->add(kEnv, Entry::kStep);
    add(progress->steps, 1);
  }
  void play(std::string_view beginning) { begin(5), reset(beginning), report(1); }
  std::uint64_t first() const { return log->first_to_replay(kEnv); }

  std::shared_ptr<Arena> arena;
  std::unique_ptr<EpisodeLog> log;
  Progress* progress;
};

}  // namespace

TEST(a_reset_that_was_interrupted_keeps_the_beginning_of_the_episode_before) {
  World world;
  world.play("one");
  for (int i = 0; i < 3; ++i) {  // again and again: each writes over the place of the beginning that was taken back
    world.begin(6), world.reset("two");
    CHECK(world.log->take_back(kEnv, 6, false));
    CHECK_EQ(world.log->beginning(kEnv, world.first()).size(), 3u);
    CHECK_EQ(load(world.progress->resets), 1u);
  }
}

TEST(a_reset_in_advance_is_taken_back_until_it_is_made) {
  World world;
  world.play("one");
  world.begin(LogPlace::kAhead), world.reset("two");
  CHECK(world.log->take_back(kEnv, 0, false));
  CHECK_EQ(world.log->entries(kEnv), 2u);
  world.log->end_resuming(kEnv);
  world.begin(LogPlace::kAhead), world.reset("two"), world.log->note_ahead(kEnv, true);
  CHECK(!world.log->take_back(kEnv, 0, false));
  CHECK_EQ(world.first(), 1u);  // the episode before it is played again, too
  CHECK_EQ(world.log->entries(kEnv), 3u);
  CHECK(world.log->take_back(kEnv, 0, true));  // its answer has not arrived
  CHECK_EQ(world.log->entries(kEnv), 2u);
}

TEST(without_an_episode_a_reset_in_advance_is_all_there_is_to_replay) {
  World world;
  CHECK_EQ(world.first(), world.log->entries(kEnv));
  world.begin(LogPlace::kAhead), world.reset("one"), world.log->note_ahead(kEnv, true);
  CHECK_EQ(world.first(), world.log->entries(kEnv) - 1);
}

TEST(an_env_that_begins_another_episode_instead_continues_the_counts) {
  World world;
  world.play("one");
  world.begin(6), world.reset("two");
  world.log->take_back(kEnv, 6, false);
  world.log->forgo(kEnv);
  CHECK(!world.log->is_resuming(kEnv));
  CHECK_EQ(load(world.progress->resets), 2u);
  world.log->add(kEnv, Entry::kMade);
  CHECK_EQ(world.first(), world.log->entries(kEnv));
}

TEST(a_call_that_is_not_repeated_counts_until_the_env_is_made_anew) {
  World world;
  LogPlace& place = world.log->place_of(kEnv);
  world.log->note_call(kEnv, true);
  CHECK_EQ(load(place.touched), 1u);
  world.log->note_call(kEnv, false);
  world.log->note_call(kEnv, true);
  CHECK_EQ(load(place.touched), LogPlace::kForGood);
  world.log->add(kEnv, Entry::kMade);
  CHECK_EQ(load(place.touched), 0u);
}

TEST(parts_of_actions_are_found_by_entry_and_those_of_the_last_try_count) {
  World world;
  world.play("one");
  const Bytes parts[] = {bytes_of("a"), bytes_of("bcd")}, again[] = {bytes_of("xy")};
  world.begin(6), world.log->put_objects(kEnv, parts), world.step();
  world.log->take_back(kEnv, 6, false);
  world.begin(7), world.log->put_objects(kEnv, again), world.step();
  const auto found = world.log->objects_by_entry(kEnv);
  CHECK_EQ(found.size(), 1u);
  CHECK_EQ(found.at(2).size(), 1u);
  CHECK_EQ(found.at(2)[0].size(), 2u);
  CHECK_EQ(load(world.log->place_of(kEnv).discarded), 0u);
  for (int i = 0; i < 4; ++i) world.begin(8 + i), world.log->put_objects(kEnv, parts), world.step();
  CHECK(load(world.log->place_of(kEnv).discarded) != 0);
}

TEST(an_env_that_is_made_anew_within_a_command_is_taken_back_with_it) {
  World world;
  world.play("one");
  world.log->note_call(kEnv, true);
  world.begin(6), world.log->add(kEnv, Entry::kMade), world.reset("two");
  CHECK(world.log->take_back(kEnv, 6, false));
  CHECK_EQ(world.first(), 1u);
  CHECK_EQ(world.log->entries(kEnv), 2u);
  CHECK_EQ(load(world.log->place_of(kEnv).touched), 2u);
  CHECK_EQ(load(world.progress->resets), 1u);
}
