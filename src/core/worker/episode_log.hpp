// A log of the recent operations on each env, in shared memory, so that it outlives the worker.
//
// Every env has a ring of entries (see `Entry`). An entry is a byte for its kind, and for a step a row of each action
// column. It is written before the env is called, so after a crash the last entry is the operation that failed.
//
// A log also has
//   - the beginnings of the latest episodes, and of the last episode with a seed. A beginning is the data with which
//     the worker's Python side can begin the episode again. The others are whole while one is being written.
//   - the parts of actions that have no column, one after another. The parts of one action are stored as
//     [ entry | parts | size of each : u64 ][ part 0 ][ part 1 ] ...
//     When there is no room for the next action's parts, all of them are discarded.
//
// To resume an episode, a log also has a digest of each row that was sent, and the place before the latest command. The
// pool takes an interrupted command back: then the log ends where it ended before the command began.
//
// The worker writes an entry, then publishes it with one store. The pool reads the log when the env is idle or its
// worker is dead. Native code may have overwritten the log, so the pool validates everything that it reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "shm/arena.hpp"
#include "shm/plan.hpp"

namespace remuda {

enum class Entry : std::uint8_t {
  kMade = 0,          // The env was created.
  kReset = 1,         // A reset without a seed: the env's random numbers continue.
  kSeededReset = 2,   // A reset with a seed, with or without options.
  kOptionsReset = 3,  // A reset with options, but without a seed.
  kStep = 4,
  kRestored = 5,  // The env was put into a state. The log does not contain the state.
};

class EpisodeLog {
 public:
  EpisodeLog(std::shared_ptr<Arena> arena, const Plan& plan) : arena_(std::move(arena)), plan_(plan) {}

  bool is_on() const { return plan_.log_entries != 0; }
  bool resumes() const { return plan_.resumes; }

  // -- the worker's end; these functions may be called only if the log is on ---------------------------

  // Returns the place in a log column for the action of the env's next entry.
  std::byte* next_action(std::uint32_t env, std::size_t column) const {
    const std::uint64_t row = row_of(env, entries(env));
    return arena_->at<std::byte>(plan_.log_actions[column]) + row * plan_.action_bytes[column];
  }

  // Writes those parts of the next action that have no column. The caller then adds the entry with `add`.
  void put_objects(std::uint32_t env, std::span<const Bytes> parts) {
    std::uint64_t total = sizeof(std::uint64_t) * (2 + parts.size());
    for (const Bytes& part : parts) total += part.size();
    std::uint64_t used = header(env).object_bytes.load(std::memory_order_relaxed);
    if (used + total > plan_.log_object_bytes) {
      header(env).object_bytes.store(used = 0, std::memory_order_release);
      if (resumes()) place_of(env).discarded.store(entries(env), std::memory_order_relaxed);
    }
    if (total > plan_.log_object_bytes) return;
    std::byte* to = objects_of(env) + used;
    to = put_number(to, entries(env));
    to = put_number(to, parts.size());
    for (const Bytes& part : parts) to = put_number(to, part.size());
    for (const Bytes& part : parts) {
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
      to += part.size();
    }
    header(env).object_bytes.store(used + total, std::memory_order_release);
  }

  void add(std::uint32_t env, Entry entry) {
    const std::uint64_t n = entries(env);
    if (entry == Entry::kMade) forget_episode(env);
    kinds()[row_of(env, n)] = entry;
    // Release, because the data of the entry was written before.
    header(env).entries.store(n + 1, std::memory_order_release);
  }

  // Adds a reset with its beginning: the data with which the episode can begin again. Data that is too long is left
  // out.
  void begin(std::uint32_t env, Entry entry, Bytes beginning) {
    const std::uint64_t n = entries(env);
    put_beginning(env, next_place(env), n, beginning);
    if (entry == Entry::kSeededReset) put_beginning(env, kSeeded, n, beginning);
    add(env, entry);
  }

  // Notes that an env is there. An env that resumes an episode goes on with the log of its predecessor.
  void add_made(std::uint32_t env) {
    if (!is_resuming(env)) add(env, Entry::kMade);
  }
  // Forgets what the env's last worker was doing.
  void begin_life(std::uint32_t env) const {
    if (resumes()) place_of(env).command.store(0, std::memory_order_relaxed);
  }

  // Counts a call of the env. The log has no entry for a call, which may have changed the env.
  void count_call(std::uint32_t env) { header(env).calls.fetch_add(1, std::memory_order_relaxed); }

  // -- to resume episodes; the next functions do nothing if the plan does not have that ----------------------

  // Notes that the worker begins a command, or a reset in advance (`LogPlace::kAhead`).
  void begin_command(std::uint32_t env, std::uint64_t sequence, const Progress& progress) const {
    if (!resumes()) return;
    LogPlace& place = place_of(env);
    place.command.store(0, std::memory_order_release);  // if the worker dies here, the command has not begun
    place.before = {entries(env),         load(header(env).begun), load(place.first), load(place.is_ahead),
                    load(place.episodes), load(place.touched),     progress.counts()};
    place.command.store(sequence, std::memory_order_release);
  }
  // Notes that a command uses the outcome of a reset in advance that has failed. To take the command back is to take
  // both back.
  void continue_command(std::uint32_t env, std::uint64_t sequence) const {
    if (resumes()) place_of(env).command.store(sequence, std::memory_order_release);
  }
  // Notes that a reset in advance has succeeded, or that its outcome is reported or discarded.
  void note_ahead(std::uint32_t env, bool is_ahead, const Progress::Seeds& before = {}) const {
    if (!resumes()) return;
    LogPlace& place = place_of(env);
    place.is_ahead.store(is_ahead, std::memory_order_relaxed);
    if (is_ahead) place.seeds_before_ahead = before;  // a command that discards the reset may be taken back
    if (is_ahead && load(place.command) == LogPlace::kAhead) place.command.store(0, std::memory_order_release);
  }
  // Notes that an episode has begun with the latest reset, the n-th since the env was built.
  void note_episode(std::uint32_t env, std::uint64_t n) const {
    if (!resumes()) return;
    LogPlace& place = place_of(env);
    place.first.store(entries(env), std::memory_order_relaxed);
    place.episodes.store(n, std::memory_order_relaxed);
    place.is_ahead.store(0, std::memory_order_relaxed);
  }
  // Notes a call that may have changed the env. `is_lasting`: whether the next env receives the call, too.
  void note_call(std::uint32_t env, bool is_lasting) const {
    if (!resumes() || load(place_of(env).touched) == LogPlace::kForGood) return;
    place_of(env).touched.store(is_lasting ? entries(env) : LogPlace::kForGood, std::memory_order_relaxed);
  }
  // The digest of the row of entry n; 0: there was no row, or it is not known.
  std::uint64_t& digest(std::uint32_t env, std::uint64_t n) const {
    return arena_->at<std::uint64_t>(plan_.log_digests)[row_of(env, n)];
  }
  // The first entry that a replay needs: the reset that began the latest episode which a result has reported, or else a
  // reset in advance. Returns the number of entries if there is none.
  std::uint64_t first_to_replay(std::uint32_t env) const {
    const std::uint64_t first = load(place_of(env).first), end = entries(env);
    return first != 0 ? first - 1 : end - load(place_of(env).is_ahead);
  }
  bool is_resuming(std::uint32_t env) const { return resumes() && load(place_of(env).is_resuming) != 0; }
  void end_resuming(std::uint32_t env) const { place_of(env).is_resuming.store(0, std::memory_order_relaxed); }
  LogPlace& place_of(std::uint32_t env) const { return arena_->at<LogPlace>(plan_.log_places)[env]; }

  // The next functions are for the pool, while no command runs in the env.
  //
  // Takes back the command `sequence`, if the worker has begun it, or a reset in advance that the worker has not
  // finished, so that the env's next worker resumes the episode. `with_ahead`: also a reset in advance that it has
  // finished. Returns whether there was one.
  bool take_back(std::uint32_t env, std::uint64_t sequence, bool with_ahead) const {
    LogPlace& place = place_of(env);
    const std::uint64_t begun = place.command.exchange(0, std::memory_order_acq_rel);
    const bool is_made = with_ahead && begun == 0 && load(place.is_ahead) != 0;
    const bool is_taken = is_made || (begun != 0 && (begun == sequence || begun == LogPlace::kAhead));
    if (is_taken) {
      header(env).entries.store(place.before.entries, std::memory_order_relaxed);
      header(env).begun.store(place.before.begun, std::memory_order_relaxed);
      place.first.store(place.before.first, std::memory_order_relaxed);
      place.is_ahead.store(place.before.is_ahead, std::memory_order_relaxed);
      place.episodes.store(place.before.episodes, std::memory_order_relaxed);
      place.touched.store(place.before.touched, std::memory_order_relaxed);
      exchange_counts(env);
    }
    // The worker may have died while it resumed the episode: then there is no other command to take back.
    const std::uint64_t was = place.is_resuming.load(std::memory_order_acquire);
    place.is_resuming.store(is_taken ? kTaken : std::max(was, kWhole), std::memory_order_release);
    return is_taken;
  }
  // Undoes `take_back` as far as an env needs that begins a new episode instead: its resets continue to count.
  void forgo(std::uint32_t env) const {
    if (place_of(env).is_resuming.exchange(0, std::memory_order_acq_rel) == kTaken) exchange_counts(env);
  }

  // -- the pool's end ----------------------------------------------------------------------------------

  std::uint64_t entries(std::uint32_t env) const { return header(env).entries.load(std::memory_order_acquire); }
  std::uint64_t calls(std::uint32_t env) const { return header(env).calls.load(std::memory_order_relaxed); }
  std::uint32_t capacity() const { return plan_.log_entries; }
  // The row of entry n in the columns of the log.
  std::uint64_t row_of(std::uint32_t env, std::uint64_t n) const {
    return std::uint64_t{env} * plan_.log_entries + n % plan_.log_entries;
  }
  Entry kind(std::uint32_t env, std::uint64_t n) const { return kinds()[row_of(env, n)]; }

  // Returns the beginning that was stored with entry n; empty if it was overwritten or never completed.
  Bytes beginning(std::uint32_t env, std::uint64_t n) const {
    for (std::uint32_t place = 0; place < kPlaces; ++place) {
      const LogBeginning& there = beginning_at(env, place);
      if (there.entry.load(std::memory_order_acquire) != n + 1) continue;
      return {there.text, std::min<std::size_t>(there.size.load(std::memory_order_relaxed), sizeof there.text)};
    }
    return {};
  }
  // Returns the parts of actions without a column, by entry. The layout is at the top of this file.
  using Objects = std::map<std::uint64_t, std::vector<Bytes>>;
  Objects objects_by_entry(std::uint32_t env) const {
    Objects found;
    Bytes rest = objects(env);
    const auto take_number = [&rest] {
      std::uint64_t n = 0;
      if (rest.size() >= sizeof n) std::memcpy(&n, rest.data(), sizeof n);
      rest = rest.subspan(std::min(rest.size(), sizeof n));
      return n;
    };
    while (!rest.empty()) {
      std::vector<Bytes>& parts = found[take_number()];
      parts.clear();  // an entry that was taken back is there twice
      std::vector<std::uint64_t> sizes(std::min<std::uint64_t>(take_number(), rest.size()));
      for (std::uint64_t& size : sizes) size = take_number();
      for (std::uint64_t size : sizes) {
        parts.push_back(rest.first(std::min<std::size_t>(size, rest.size())));
        rest = rest.subspan(parts.back().size());
      }
    }
    return found;
  }
  // Returns the parts of actions without a column, in the layout at the top of this file.
  Bytes objects(std::uint32_t env) const {
    const std::uint64_t used = header(env).object_bytes.load(std::memory_order_acquire);
    return {objects_of(env), std::min(used, plan_.log_object_bytes)};
  }

 private:
  // `kSeeded` is the place of the latest beginning with a seed. The other four are used in turn.
  static constexpr std::uint32_t kPlaces = LogBeginning::kPlaces, kSeeded = kPlaces - 1;

  LogHeader& header(std::uint32_t env) const { return arena_->at<LogHeader>(plan_.log_headers)[env]; }
  LogBeginning& beginning_at(std::uint32_t env, std::uint32_t place) const {
    return arena_->at<LogBeginning>(plan_.log_beginnings)[env * kPlaces + place];
  }
  Entry* kinds() const { return arena_->at<Entry>(plan_.log_kinds); }
  std::byte* objects_of(std::uint32_t env) const {
    return arena_->at<std::byte>(plan_.log_objects) + env * plan_.log_object_bytes;
  }

  // The values of `LogPlace::is_resuming`: whether a command was taken back.
  static constexpr std::uint64_t kWhole = 1, kTaken = 2;

  void exchange_counts(std::uint32_t env) const {
    Progress& progress = arena_->at<Progress>(plan_.progress)[env];
    const Progress::Counts counts = progress.counts();
    progress.restore(place_of(env).before.counts);
    place_of(env).before.counts = counts;
  }

  void forget_episode(std::uint32_t env) {
    header(env).calls.store(0, std::memory_order_relaxed);
    if (!resumes()) return;
    LogPlace& place = place_of(env);
    for (auto* one : {&place.touched, &place.first, &place.is_ahead, &place.episodes})
      one->store(0, std::memory_order_relaxed);
  }

  static std::byte* put_number(std::byte* to, std::uint64_t n) {
    std::memcpy(to, &n, sizeof n);
    return to + sizeof n;
  }

  // Returns the place for the next beginning: not that of the episode to be played again, which goes on until a result
  // reports another, however many resets in advance are discarded meanwhile. Of the other three, one has the latest
  // reset before a command, and a command may make two resets: one in advance that is due, and its own.
  std::uint32_t next_place(std::uint32_t env) const {
    const auto take = [&] {
      return static_cast<std::uint32_t>(header(env).begun.fetch_add(1, std::memory_order_relaxed) % kSeeded);
    };
    const std::uint32_t place = take();
    const std::uint64_t first = resumes() ? load(place_of(env).first) : 0;
    return first != 0 && load(beginning_at(env, place).entry) == first ? take() : place;
  }

  void put_beginning(std::uint32_t env, std::uint32_t place, std::uint64_t n, Bytes text) {
    LogBeginning& there = beginning_at(env, place);
    there.entry.store(0, std::memory_order_release);
    if (text.size() > sizeof there.text) return;
    if (!text.empty()) std::memcpy(there.text, text.data(), text.size());
    there.size.store(static_cast<std::uint32_t>(text.size()), std::memory_order_relaxed);
    there.entry.store(n + 1, std::memory_order_release);
  }

  std::shared_ptr<Arena> arena_;
  Plan plan_;
};

}  // namespace remuda
