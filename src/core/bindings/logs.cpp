// Bindings of the episode log, of the trace log, and of the clock for deadlines.
#include "bindings/bindings.hpp"
#include "ipc/running_clock.hpp"
#include "pool/tracing/trace_log.hpp"
#include "worker/episode_log.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

nb::bytes events_of(const TraceLog& log) {
  const std::vector<TraceEvent> events(log.events().begin(), log.events().end());
  return nb::bytes(events.data(), events.size() * sizeof(TraceEvent));
}

nb::bytes as_bytes(Bytes bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::bytes beginning_of(const EpisodeLog& log, std::uint32_t env, std::uint64_t entry) {
  return as_bytes(log.beginning(env, entry));
}

nb::bytes objects_of(const EpisodeLog& log, std::uint32_t env) { return as_bytes(log.objects(env)); }

int kind_of(const EpisodeLog& log, std::uint32_t env, std::uint64_t entry) {
  return static_cast<int>(log.kind(env, entry));
}

// Returns (the first entry of the episode to be played again, which equals `entries` if there is none; the number of
// entries when a call may have changed the env; the number of entries when parts of actions were discarded). The last
// two are 0 if there was none.
nb::tuple place_of(const EpisodeLog& log, std::uint32_t env) {
  const LogPlace& place = log.place_of(env);
  return nb::make_tuple(log.first_to_replay(env), load(place.touched), load(place.discarded));
}

}  // namespace

void bind_logs(nb::module_& m) {
  nb::enum_<Entry>(m, "Entry")
      .value("MADE", Entry::kMade)
      .value("RESET", Entry::kReset)
      .value("SEEDED_RESET", Entry::kSeededReset)
      .value("OPTIONS_RESET", Entry::kOptionsReset)
      .value("STEP", Entry::kStep)
      .value("RESTORED", Entry::kRestored);
  m.attr("FOR_GOOD") = LogPlace::kForGood;
  nb::class_<EpisodeLog>(m, "EpisodeLog")
      .def(nb::init<std::shared_ptr<Arena>, const Plan&>(), "arena"_a, "plan"_a)
      .def_prop_ro("capacity", &EpisodeLog::capacity)
      .def("entries", &EpisodeLog::entries, "env"_a)
      .def("calls", &EpisodeLog::calls, "env"_a)
      .def("row", &EpisodeLog::row_of, "env"_a, "entry"_a)
      .def("kind", &kind_of, "env"_a, "entry"_a, "The number of an Entry, or any value that has overwritten it.")
      .def("beginning", &beginning_of, "env"_a, "entry"_a)
      .def("objects", &objects_of, "env"_a)
      .def("add", &EpisodeLog::add, "env"_a, "entry"_a)
      .def("place", &place_of, "env"_a)
      .def("take_back", &EpisodeLog::take_back, "env"_a, "sequence"_a, "with_ahead"_a)
      .def("forgo", &EpisodeLog::forgo, "env"_a)
      .def("is_resuming", &EpisodeLog::is_resuming, "env"_a);

  nb::class_<RunningClock>(m, "RunningClock")
      .def(nb::init<>())
      .def(
          "now",
          [](RunningClock& clock, bool has_waited, bool is_beside) {
            const auto now = Clock::now();
            if (has_waited && is_beside)
              clock.look_awake(now);
            else
              clock.look(now, has_waited ? RunningClock::kStall : RunningClock::kUnwatched);
            return std::chrono::duration<double>(now.time_since_epoch() - clock.lost()).count();
          },
          "has_waited"_a, "is_beside"_a);

  nb::class_<TraceLog>(m, "TraceLog")
      .def(nb::init<std::size_t>(), "capacity"_a)
      .def("grow", &TraceLog::grow, "capacity"_a)
      .def("events", &events_of, "The events as the bytes of `TraceEvent`s, the oldest first.");
}

}  // namespace remuda
