// Bindings of the hub, and of the objects that it returns.
#include "pool/hub/hub.hpp"

#include <tuple>

#include "bindings/bindings.hpp"
#include "python/collected.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

// Wraps a method of the hub for Python. A call first enters the hub through its `HubLock`, which may refuse it.
// `for_part`: whether the method is for the part that its last argument names.
template <auto method, HubLock::Kind kind, bool for_part = false>
struct Entering;

template <class Result, class... Arguments, Result (Hub::*method)(Arguments...), HubLock::Kind kind, bool for_part>
struct Entering<method, kind, for_part> {
  static HubLock::PartNumber part_of([[maybe_unused]] const Hub& hub, [[maybe_unused]] const Arguments&... arguments) {
    if constexpr (!for_part)
      return {};
    else {
      const HubLock::PartNumber part = std::get<sizeof...(Arguments) - 1>(std::tie(arguments...));
      return kind == HubLock::Kind::kSeries && part && !hub.has_part(*part) ? HubLock::PartNumber() : part;
    }
  }

  static Result call(Hub& hub, Arguments... arguments) {
    HubLock::Guard guard(hub.lock(), kind, part_of(hub, arguments...));
    if constexpr (std::is_void_v<Result>) {
      (hub.*method)(std::forward<Arguments>(arguments)...);
      if constexpr (kind != HubLock::Kind::kWithin) hub.pass_on();  // may call a Python function
      guard.end();
    } else {
      Result result = (hub.*method)(std::forward<Arguments>(arguments)...);
      if constexpr (kind != HubLock::Kind::kWithin) hub.pass_on();  // may call a Python function
      guard.end();
      return result;
    }
  }
};

template <auto method>
constexpr auto from_outside = &Entering<method, HubLock::Kind::kOutside>::call;
template <auto method>
constexpr auto for_part = &Entering<method, HubLock::Kind::kOutside, true>::call;
template <auto method>
constexpr auto in_series = &Entering<method, HubLock::Kind::kSeries, true>::call;
template <auto method>
constexpr auto from_within = &Entering<method, HubLock::Kind::kWithin>::call;
template <auto method>
constexpr auto deciding = &Entering<method, HubLock::Kind::kDecision>::call;

void bind_slots(nb::module_& m) {
  nb::enum_<Fate>(m, "Fate")
      .value("LOST", Fate::kLost)
      .value("RAISED", Fate::kRaised)
      .value("DYING", Fate::kDying)
      .value("RENEWED", Fate::kRenewed)
      .value("ENDED", Fate::kEnded)
      .value("RESUMED", Fate::kResumed)
      .value("FAILED", Fate::kFailed)
      .value("REPORTED", Fate::kReported);
  nb::enum_<Refusal::Reason>(m, "Reason")
      .value("PART", Refusal::Reason::kPart)
      .value("PENDING", Refusal::Reason::kPending)
      .value("TARGETS", Refusal::Reason::kTargets)
      .value("MUST_RESET", Refusal::Reason::kMustReset)
      .value("LOST", Refusal::Reason::kLost)
      .value("IN_FLIGHT", Refusal::Reason::kInFlight);
  nb::class_<Refusal>(m, "Refusal", "The reason why a command was not sent, and the slots that failed the check.")
      .def_ro("reason", &Refusal::reason)
      .def_ro("slots", &Refusal::slots);
  nb::class_<SlotGuards>(m, "SlotGuards")
      .def(nb::init<std::uint32_t, std::uint32_t>(), "slots"_a, "envs"_a)
      .def("require_reset", &SlotGuards::require_reset, "slot"_a, "can_be_observed"_a = false)
      .def("note_reset", &SlotGuards::note_reset, "slot"_a)
      .def("must_reset", &SlotGuards::must_reset, "slot"_a)
      .def("must_reset_before", &SlotGuards::must_reset_before, "op"_a, "slot"_a)
      .def("lose", &SlotGuards::lose, "env"_a)
      .def("note_faults", &SlotGuards::note_faults, "any_unraised"_a, "is_urgent"_a);
  nb::class_<SlotLedger>(m, "SlotLedger")
      .def("env_of", &SlotLedger::env_of, "slot"_a)
      .def("worker_of", &SlotLedger::worker_of, "slot"_a)
      .def("slot_of", &SlotLedger::slot_of, "env"_a)
      .def("part_of", &SlotLedger::part_of, "slot"_a)
      .def("last_sent", &SlotLedger::last_sent, "slots"_a)
      .def("interrupted", &SlotLedger::interrupted, "slot"_a)
      .def("is_idle", &SlotLedger::is_idle, "slot"_a)
      .def("action_row", &SlotLedger::action_row, "slot"_a)
      .def("is_fresh", &SlotLedger::is_fresh, "slot"_a)
      .def("set_fresh", &SlotLedger::set_fresh, "slot"_a, "is_fresh"_a = true)
      .def("note_replaced", &SlotLedger::note_replaced, "slot"_a)
      .def("is_over", &SlotLedger::is_over, "slot"_a)
      .def("has_results", &SlotLedger::has_results, "slot"_a)
      .def("last", &SlotLedger::last, "slot"_a)
      .def("cut_off", &SlotLedger::cut_off, "slot"_a, "parts"_a)
      .def("needs_reset", &SlotLedger::needs_reset, "slot"_a)
      .def("has_begun", &SlotLedger::has_begun, "slot"_a)
      .def("progress", &SlotLedger::progress, "env"_a)
      .def("seeded", &SlotLedger::seeded, "env"_a)
      .def_prop_ro("guards", &SlotLedger::guards)
      .def("pending", &SlotLedger::pending, "part"_a = 0)
      .def("ready", &SlotLedger::ready, "part"_a = 0)
      .def("has_part", &SlotLedger::has_part, "part"_a)
      .def_prop_ro("part_numbers", &SlotLedger::part_numbers)
      .def_prop_ro("any_pending", &SlotLedger::any_pending)
      .def("seat_in_order", &SlotLedger::seat_in_order)
      .def("count_fault", &SlotLedger::count_fault, "env"_a)
      .def("cut_off_in_rollout", &SlotLedger::cut_off_in_rollout, "slot"_a);
}

void bind_workers(nb::module_& m) {
  nb::class_<Watch>(m, "Watch")
      .def("wait", &Watch::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("wake", &Watch::wake)
      .def("await_records", &Watch::await_records)
      .def(
          "remind", [](Watch& watch, std::int64_t ns) { watch.remind(Nanoseconds(ns)); }, "ns"_a)
      .def("close", &Watch::close);
  nb::enum_<WorkerState>(m, "WorkerState")
      .value("STARTING", WorkerState::kStarting)
      .value("RUNNING", WorkerState::kRunning)
      .value("LATE", WorkerState::kLate)
      .value("CLOSING", WorkerState::kClosing)
      .value("KILLED", WorkerState::kKilled)
      .value("CORRUPT", WorkerState::kCorrupt)
      .value("DEAD", WorkerState::kDead);
  nb::class_<Workers>(m, "Workers")
      .def("state", &Workers::state, "worker"_a)
      .def("note_closing", &Workers::note_closing, "worker"_a)
      .def("note_killed", &Workers::note_killed, "worker"_a)
      .def_prop_ro("supervision", &Workers::watch)
      .def("has_room", &Workers::has_room, "worker"_a)
      .def("arrive", &Workers::arrive, "worker"_a, "pidfd"_a, "socket"_a = -1)
      .def("watch", &Workers::watch_process, "worker"_a, "pidfd"_a, "socket"_a = -1)
      .def("relay", &Workers::relay, "fd"_a)
      .def("records_sent", &Workers::records_sent)
      .def("forgive", &Workers::forgive, "worker"_a)
      .def("set_deadlines", &Workers::set_deadlines, "reset_ns"_a, "step_ns"_a, "message_ns"_a, "build_ns"_a,
           "close_ns"_a)
      .def("doing", &Workers::doing, "worker"_a)
      .def("busy_since", &Workers::busy_since, "worker"_a)
      .def("count_restart", &Workers::count_restart, "worker"_a)
      .def("count_memory_renewal", &Workers::count_memory_renewal, "worker"_a)
      .def("begin_outage", &Workers::begin_outage, "worker"_a, "since"_a);
}

void bind_events(nb::module_& m) {
  nb::class_<Message>(m, "Message", "The answer to a message, the failure of an env, or its renewal that is due.")
      .def_ro("worker", &Message::worker)
      .def_ro("slot", &Message::slot)
      .def_ro("sequence", &Message::sequence)
      .def_ro("flags", &Message::flags)
      .def_prop_ro(
          "parts", [](const Message& message) { return none_or(message.parts); },
          nb::for_getter(nb::sig("def parts(self) -> typing.Any")));
  nb::class_<LateWorker>(m, "LateWorker", "A worker that missed a deadline, or that sent unsound results (op None).")
      .def_ro("worker", &LateWorker::worker)
      .def_ro("op", &LateWorker::op)
      .def_ro("task", &LateWorker::task);
  nb::class_<EndedWorker>(m, "EndedWorker", "A worker whose process has ended.").def_ro("worker", &EndedWorker::worker);
  nb::class_<DeadWorker>(m, "DeadWorker", "The commands that a worker has left unanswered.")
      .def_ro("orphaned", &DeadWorker::orphaned)
      .def_ro("unanswered", &DeadWorker::unanswered);
}

}  // namespace

void bind_hub(nb::module_& m) {
  bind_slots(m);
  bind_workers(m);
  bind_events(m);
  nb::class_<ActionColumn>(m, "ActionColumn")
      .def(nb::init<Column, std::optional<std::vector<ActionColumn::Bounds>>>(), "column"_a, "bounds"_a.none(),
           nb::keep_alive<1, 2>());
  nb::class_<Actions>(m, "Actions")
      .def(nb::init<std::vector<ActionColumn>, nb::handle, nb::object>(), "columns"_a, "nest"_a, "convert"_a);
  nb::class_<CallerMeter>(m, "CallerMeter")
      .def_prop_ro("batches", &CallerMeter::batches, "The number of batches that were handed out.")
      .def("note_unpickled", &CallerMeter::note_unpickled, "ns"_a);
  nb::class_<Callbacks>(m, "Callbacks")
      .def_rw("pump", &Callbacks::pump)
      .def_rw("pass_on", &Callbacks::pass_on)
      .def_rw("log", &Callbacks::log)
      .def_rw("make_rows", &Callbacks::make_rows)
      .def_rw("look_at", &Callbacks::look_at);
  nb::class_<FrameTaker>(m, "FrameTaker").def_prop_ro("num_info_columns", &FrameTaker::num_info_columns);

  nb::class_<Hub>(m, "Hub", nb::type_slots(Collected<Hub>::slots))
      .def(nb::init<std::shared_ptr<Arena>, Plan, std::vector<std::uint32_t>, Autoreset, std::vector<Column>,
                    std::vector<Column>, std::vector<Column>, Actions, const nb::sequence&, std::int64_t, std::uint32_t,
                    bool, bool>(),
           "arena"_a, "plan"_a, "envs_of_worker"_a, "autoreset"_a, "columns"_a, "final_columns"_a, "computed"_a,
           "actions"_a, "queues"_a, "spin_ns"_a, "max_running"_a, "one_sleeps"_a = false, "ignore_load"_a = false)
      .def("split", from_outside<&Hub::split>, "parts"_a)
      .def("env_ids", &Hub::env_ids, "part"_a, nb::sig("def env_ids(self, part: int) -> numpy.ndarray"))
      .def("begin_rollout", from_outside<&Hub::begin_rollout>, "part"_a, "parts"_a, "steps"_a, "extras"_a,
           nb::sig("def begin_rollout(self, part: int, parts: int, steps: int, extras: dict) -> RolloutViews"))
      .def("end_rollout", for_part<&Hub::end_rollout>, "rollout"_a, "part"_a)
      .def("bytes_for_rollout", &Hub::bytes_for_rollout, "rows"_a)
      .def("set_batches", &Hub::set_batches, "type"_a, "source"_a, "look"_a, "obs_is_array"_a)
      .def_prop_ro("callbacks", &Hub::callbacks, nb::rv_policy::reference_internal)
      .def_prop_ro("caller", &Hub::caller, nb::rv_policy::reference_internal)
      .def_prop_ro("frames", &Hub::frames, nb::rv_policy::reference_internal)
      .def_prop_ro("slots", &Hub::slots, nb::rv_policy::reference_internal)
      .def_prop_ro("workers", &Hub::workers, nb::rv_policy::reference_internal)
      .def("send", for_part<&Hub::send>, "op"_a, "slots"_a.none(), "actions"_a.none() = nb::none(),
           "blobs"_a.none() = nb::none(), "part"_a = 0)
      .def("step", for_part<&Hub::step>, "actions"_a.none(), "slots"_a.none(), "part"_a,
           nb::sig("def step(self, actions: object, slots: object, part: int) -> Batch | Refusal | None"))
      .def("post_message", from_outside<&Hub::post_message>, "op"_a, "worker"_a, "env"_a, "parts"_a.none(),
           "addressees"_a.none() = nb::none(), "addressee"_a.none() = nb::none())
      .def("instruct", from_within<&Hub::post_message>, "op"_a, "worker"_a, "env"_a, "parts"_a.none(),
           "addressees"_a.none() = nb::none(), "addressee"_a.none() = nb::none())
      .def("in_absence", &Hub::in_absence, "function"_a)
      .def("decide", deciding<&Hub::decide>, "function"_a)
      .def("take_events", from_within<&Hub::take_events>)
      .def("log", &Hub::log, "is_apart"_a = false)
      .def("log_news", &Hub::log_news)
      .def("note_logged", &Hub::note_logged)
      .def("in_turn", in_series<&Hub::in_turn>, "function"_a, "part"_a.none())
      .def_prop_ro("is_in_turn", [](Hub& hub) { return hub.lock().is_mine(); })
      .def(
          "close", [](Hub& hub, nb::object close) { hub.lock().close(std::move(close)); }, "close"_a)
      .def("wait", from_outside<&Hub::wait>, "wanted"_a, "timeout_ns"_a, "part"_a.none())
      .def("receive", for_part<&Hub::receive>, "wanted"_a, "part"_a,
           nb::sig("def receive(self, wanted: int, part: int) -> Batch | None"))
      .def(
          "take", from_outside<&Hub::take>, "limit"_a, "by_slot"_a = false, "slots"_a.none() = nb::none(), "part"_a = 0,
          nb::sig(
              "def take(self, limit: int, by_slot: bool = False, slots: object | None = None, part: int = 0) -> Batch"))
      .def("drop_ready", from_outside<&Hub::drop_ready>, "part"_a = 0)
      .def("settle", from_within<&Hub::settle>, "slot"_a, "fate"_a, "data"_a.none() = nb::none())
      .def("release_failed", from_within<&Hub::release_failed>, "part"_a)
      .def("reopen", from_within<&Hub::reopen>, "worker"_a)
      .def("end", from_within<&Hub::end>, "worker"_a)
      .def("break_all", from_within<&Hub::break_all>)
      .def("add_info_column", from_within<&Hub::add_info_column>, "column"_a)
      .def("set_trace", &Hub::set_trace, "log"_a.none());
}

}  // namespace remuda
