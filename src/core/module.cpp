// Registrations, and nothing more.
#define REMUDA_IMPORTS_NUMPY
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <system_error>

#include "os/descriptor.hpp"
#include "os/lifeline.hpp"
#include "os/output_trimmer.hpp"
#include "os/process_group.hpp"
#include "os/process_tree.hpp"
#include "pool/hub.hpp"
#include "python/call_all.hpp"
#include "python/interpreter.hpp"
#include "python/numpy_api.hpp"
#include "shm/info_reader.hpp"
#include "worker/episode_log.hpp"
#include "worker/loop.hpp"

using namespace nb::literals;
using namespace remuda;

namespace {

void* import_numpy() {
  import_array();
  return nullptr;
}

Plan make_plan(std::uint32_t workers, std::uint32_t slots, std::uint32_t envs, std::uint32_t frames,
               std::uint32_t ring_capacity, std::uint64_t blob_bytes, std::vector<std::uint64_t> action_bytes,
               std::vector<std::uint64_t> column_bytes, std::uint32_t width, bool keeps_last, std::uint32_t log_entries,
               std::uint64_t log_object_bytes) {
  Plan plan{
      workers, slots,     envs, frames, ring_capacity, blob_bytes, std::move(action_bytes), std::move(column_bytes),
      width,   keeps_last};
  plan.log_entries = log_entries;
  plan.log_object_bytes = log_object_bytes;
  plan.lay_out();
  return plan;
}

nb::bytes as_bytes(Bytes bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::bytes beginning_of(const EpisodeLog& log, std::uint32_t env, std::uint64_t entry) {
  return as_bytes(log.beginning(env, entry));
}

nb::bytes objects_of(const EpisodeLog& log, std::uint32_t env) { return as_bytes(log.objects(env)); }

int kind_of(const EpisodeLog& log, std::uint32_t env, std::uint64_t entry) {
  return static_cast<int>(log.kind(env, entry));
}

// The same arena, whose memory is given back without the GIL: for gigabytes that takes as long as a few steps.  Whoever
// comes last is Python, which has it, or a fork of a thread that has not.
std::shared_ptr<Arena> unmapped_without_gil(std::shared_ptr<Arena> arena) {
  Arena* raw = arena.get();
  return {raw, [arena = std::move(arena)](Arena*) mutable {
            if (!holds_gil()) return arena.reset();
            nb::gil_scoped_release release;
            arena.reset();
          }};
}

std::shared_ptr<Arena> create_arena(std::size_t bytes) {
  nb::gil_scoped_release release;
  return unmapped_without_gil(Arena::create(bytes));
}

int visit_hub(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Hub>(self)->visit(visit, arg) : 0;
}

int clear_hub(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Hub>(self)->clear();
  return 0;
}

PyType_Slot kHubSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_hub)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear_hub)},
                           {0, nullptr}};

int visit_batch(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Batch>(self)->visit(visit, arg) : 0;
}

int clear_batch(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Batch>(self)->clear();
  return 0;
}

PyType_Slot kBatchSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_batch)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_batch)},
                             {0, nullptr}};

template <Batch::Attribute attribute>
nb::object get_attribute(Batch& batch) {
  return batch.get(attribute);
}

template <Batch::Attribute attribute>
void set_attribute(Batch& batch, nb::object value) {
  batch.set(attribute, std::move(value));
}

// What is no single array, the subclass builds.
nb::object obs_of(nb::handle_t<Batch> self) {
  auto& batch = nb::cast<Batch&>(self);
  if (nb::object made = batch.get(Batch::kObs); made.is_valid()) return made;
  batch.set(Batch::kObs, self.attr("_build_obs")());
  return batch.get(Batch::kObs);
}

}  // namespace

NB_MODULE(_core, m) {
  // Arrays may outlive the interpreter: a tensor made from one by DLPack, which nobody frees at exit, or those that a
  // thread held that was still stepping. The process is about to end; a report of leaks would alarm for nothing.
  nb::set_leak_warnings(false);

  m.doc() = "The C++ core of remuda: shared memory, wake-ups and the worker's inner loop. Internal.";
  import_numpy();
  if (PyErr_Occurred()) nb::raise_python_error();

  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::system_error& error) {
      PyObject* arguments = Py_BuildValue("(is)", error.code().value(), error.what());
      if (arguments != nullptr) PyErr_SetObject(PyExc_OSError, arguments);
      Py_XDECREF(arguments);
    }
  });

  nb::enum_<Op>(m, "Op")
      .value("RESET", Op::kReset)
      .value("STEP", Op::kStep)
      .value("OBSERVE", Op::kObserve)
      .value("MESSAGE", Op::kMessage)
      .value("CLOSE", Op::kClose)
      .value("REVIVE", Op::kResetIntoRow)
      .value("REBUILD", Op::kRebuild)
      .value("PREPARE", Op::kPrepare);
  nb::enum_<Autoreset>(m, "Autoreset")
      .value("NEXT_STEP", Autoreset::kNextStep)
      .value("SAME_STEP", Autoreset::kSameStep)
      .value("DISABLED", Autoreset::kDisabled)
      .value("BACKGROUND", Autoreset::kBackground);
  m.attr("HAS_FINAL") = kHasFinal;
  m.attr("HAS_NEW_KEYS") = kHasNewKeys;
  m.attr("IS_FAILURE") = kIsFailure;
  m.attr("RENEWAL_DUE") = kRenewalDue;
  m.attr("HAS_SPARES") = kHasSpares;
  m.attr("UNDONE") = kUndone;
  m.attr("IS_MESSAGE") = kIsMessage;
  m.attr("WHOLE_WORKER") = kWholeWorker;
  m.attr("FIRST_LEAF") = kFirstLeaf;
  m.attr("INFO_COLUMN") = kInfo;
  m.attr("MAX_INFO_COLUMNS") = InfoWriter::kMaxColumns;
  m.attr("MAX_INFO_COLUMN_BYTES") = InfoWriter::kMaxColumnBytes;
  m.attr("BEGINNING_BYTES") = sizeof(LogBeginning::text);
  m.attr("MAX_FRAMES") = FrameBook::kMaxFrames;

  nb::class_<Plan>(m, "Plan")
      .def(
          "__init__",
          [](Plan* self, std::uint32_t workers, std::uint32_t slots, std::uint32_t envs, std::uint32_t frames,
             std::uint32_t ring_capacity, std::uint64_t blob_bytes, std::vector<std::uint64_t> action_bytes,
             std::vector<std::uint64_t> column_bytes, std::uint32_t width, bool keeps_last, std::uint32_t log_entries,
             std::uint64_t log_object_bytes) {
            new (self) Plan(make_plan(workers, slots, envs, frames, ring_capacity, blob_bytes, std::move(action_bytes),
                                      std::move(column_bytes), width, keeps_last, log_entries, log_object_bytes));
          },
          "workers"_a, "slots"_a, "envs"_a, "frames"_a, "ring_capacity"_a, "blob_bytes"_a, "action_bytes"_a,
          "column_bytes"_a, "width"_a, "keeps_last"_a, "log_entries"_a, "log_object_bytes"_a)
      .def_ro("actions", &Plan::actions)
      .def_ro("columns", &Plan::columns)
      .def_ro("log_actions", &Plan::log_actions)
      .def_ro("bytes", &Plan::bytes)
      .def_prop_ro("rows", &Plan::rows);

  nb::class_<Column>(m, "Column")
      .def("read", &Column::read, "row"_a)
      .def(
          "view",
          [](nb::handle_t<Column> self, std::uint32_t rows) {
            return nb::cast<const Column&>(self).view(0, rows, self);
          },
          "rows"_a, "Its first rows, as an array of shape (rows, *shape).");

  nb::class_<Arena>(m, "Arena")
      // Reserving gigabytes takes the kernel a while, and other threads want to go on.
      .def_static("create", &create_arena, "bytes"_a)
      .def_static(
          "attach", [](int fd, std::size_t bytes) { return unmapped_without_gil(Arena::attach(fd, bytes)); }, "fd"_a,
          "bytes"_a)
      .def(
          "column",
          [](Arena& arena, nb::object dtype, std::vector<npy_intp> shape, std::uint64_t offset) {
            return Column(std::move(dtype), std::move(shape), arena.at<std::byte>(offset));
          },
          "dtype"_a, "shape"_a, "offset"_a, nb::keep_alive<0, 1>())
      .def("close_fd", &Arena::close_fd)
      .def_prop_ro("fd", &Arena::fd)
      .def_prop_ro("bytes", &Arena::bytes);

  nb::class_<ActionColumn>(m, "ActionColumn")
      .def(nb::init<Column, nb::sequence>(), "column"_a, "bounds"_a, nb::keep_alive<1, 2>());

  nb::class_<Lease>(m, "Lease");
  nb::class_<Batch>(m, "Batch", nb::type_slots(kBatchSlots))
      .def(
          "__init__",
          [](Batch* self, nb::object source, nb::object env_ids, nb::list columns, nb::object finals, nb::object infos,
             nb::object extras) {
            auto or_null = [](nb::object& object) { return object.is_none() ? nb::object() : object; };
            new (self) Batch(std::move(source), std::move(env_ids), {columns, or_null(finals), or_null(infos)},
                             or_null(extras), false);
          },
          "source"_a, "env_ids"_a, "columns"_a, "finals"_a.none(), "infos"_a.none(), "extras"_a.none())
      .def("__len__", &Batch::count)
      .def_prop_rw("env_ids", &get_attribute<Batch::kEnvIds>, &set_attribute<Batch::kEnvIds>)
      .def_prop_rw("reward", &get_attribute<Batch::kReward>, &set_attribute<Batch::kReward>)
      .def_prop_rw("terminated", &get_attribute<Batch::kTerminated>, &set_attribute<Batch::kTerminated>)
      .def_prop_rw("truncated", &get_attribute<Batch::kTruncated>, &set_attribute<Batch::kTruncated>)
      .def_prop_rw("obs", &obs_of, &set_attribute<Batch::kObs>)
      .def_prop_ro("_source", &Batch::source)
      .def_prop_ro(
          "_extras", [](const Batch& batch) { return none_or(batch.extras()); },
          nb::for_getter(nb::sig("def _extras(self) -> dict | None")))
      .def_prop_ro("has_infos", &Batch::has_infos)
      .def("_info_mask", &Batch::info_mask, nb::sig("def _info_mask(self) -> numpy.ndarray"))
      .def("_leaves", &Batch::leaves)
      .def("_final_leaves", &Batch::finals, nb::sig("def _final_leaves(self) -> list | None"))
      .def("_info_arrays", &Batch::infos, nb::sig("def _info_arrays(self) -> list | None"));

  nb::enum_<Refusal>(m, "Refusal")
      .value("PART", Refusal::kPart)
      .value("PENDING", Refusal::kPending)
      .value("TARGETS", Refusal::kTargets)
      .value("ACTIONS", Refusal::kActions)
      .value("MUST_RESET", Refusal::kMustReset)
      .value("LOST", Refusal::kLost)
      .value("IN_FLIGHT", Refusal::kInFlight);
  nb::class_<Obstacles>(m, "Obstacles")
      .def(nb::init<std::uint32_t, std::uint32_t>(), "slots"_a, "envs"_a)
      .def("require_reset", &Obstacles::require_reset, "slot"_a)
      .def("must_reset", &Obstacles::must_reset, "slot"_a)
      .def("lose", &Obstacles::lose, "env"_a)
      .def("set_untold", &Obstacles::set_untold, "any"_a);

  nb::enum_<Entry>(m, "Entry")
      .value("MADE", Entry::kMade)
      .value("RESET", Entry::kReset)
      .value("SEEDED_RESET", Entry::kSeededReset)
      .value("OPTIONS_RESET", Entry::kOptionsReset)
      .value("STEP", Entry::kStep);
  nb::class_<EpisodeLog>(m, "EpisodeLog")
      .def(nb::init<std::shared_ptr<Arena>, const Plan&>(), "arena"_a, "plan"_a)
      .def_prop_ro("capacity", &EpisodeLog::capacity)
      .def("entries", &EpisodeLog::entries, "env"_a)
      .def("calls", &EpisodeLog::calls, "env"_a)
      .def("row", &EpisodeLog::row_of, "env"_a, "entry"_a)
      .def("kind", &kind_of, "env"_a, "entry"_a, "An Entry's number, or what was written over it.")
      .def("beginning", &beginning_of, "env"_a, "entry"_a)
      .def("objects", &objects_of, "env"_a);

  nb::class_<RunningClock>(m, "RunningClock")
      .def(nb::init<>())
      .def(
          "now",
          [](RunningClock& clock, bool has_waited) {
            const auto now = Clock::now();
            clock.look(now, has_waited ? RunningClock::kStall : RunningClock::kUnwatched);
            return std::chrono::duration<double>(now.time_since_epoch() - clock.lost()).count();
          },
          "has_waited"_a);

  nb::class_<Hub>(m, "Hub", nb::type_slots(kHubSlots))
      .def(nb::init<std::shared_ptr<Arena>, Plan, std::vector<std::uint32_t>, Autoreset, std::vector<Column>,
                    std::vector<Column>, std::vector<ActionColumn>, nb::object, nb::object, nb::object, std::int64_t,
                    std::uint32_t, bool, bool>(),
           "arena"_a, "plan"_a, "envs_of_worker"_a, "autoreset"_a, "columns"_a, "final_columns"_a, "actions"_a,
           "action_nest"_a, "receive"_a, "send"_a, "spin_ns"_a, "max_running"_a, "one_sleeps"_a = false,
           "spins_heedlessly"_a = false)
      .def("split", &Hub::split, "parts"_a)
      .def("has_part", &Hub::has_part, "part"_a)
      .def("env_ids", &Hub::env_ids, "part"_a, nb::sig("def env_ids(self, part: int) -> numpy.ndarray"))
      .def("set_batches", &Hub::set_batches, "type"_a, "source"_a, "look"_a, "obs_is_array"_a)
      .def("look_at", &Hub::look_at, "number"_a)
      .def_prop_ro("batches", &Hub::batches)
      .def("set_pump", &Hub::set_pump, "pump"_a)
      .def_prop_ro("obstacles", &Hub::obstacles)
      .def("seat_in_order", &Hub::seat_in_order)
      .def("send", &Hub::send, "op"_a, "slots"_a.none(), "actions"_a.none() = nb::none(), "blobs"_a.none() = nb::none(),
           "part"_a = 0)
      .def("step", &Hub::step, "actions"_a.none(), "slots"_a.none(), "part"_a,
           nb::sig("def step(self, actions: object, slots: object, part: int) -> Batch | Refusal | None"))
      .def("post_message", &Hub::post_message, "op"_a, "worker"_a, "env"_a, "parts"_a.none(),
           "addressees"_a.none() = nb::none(), "addressee"_a.none() = nb::none())
      .def("has_room", &Hub::has_room, "worker"_a)
      .def("wait", &Hub::wait, "wanted"_a, "timeout_ns"_a, "part"_a.none())
      .def("receive", &Hub::receive, "wanted"_a, "part"_a,
           nb::sig("def receive(self, wanted: int, part: int) -> Batch | None"))
      .def("take", &Hub::take, "limit"_a, "by_slot"_a = false, "slots"_a.none() = nb::none(), "part"_a = 0,
           nb::sig("def take(self, limit: int, by_slot: bool = False, slots: object | None = None, part: int = 0) "
                   "-> Batch"))
      .def("drop_ready", &Hub::drop_ready, "part"_a = 0)
      .def("first_message", &Hub::first_message, nb::sig("def first_message(self) -> tuple | None"))
      .def("remove_message", &Hub::remove_message)
      .def("watch", &Hub::watch, "worker"_a, "pidfd"_a, "socket"_a = -1)
      .def("relay", &Hub::relay, "fd"_a)
      .def("said", &Hub::said)
      .def_prop_ro("has_unheard", &Hub::has_unheard)
      .def("note_heard", &Hub::note_heard, "said"_a)
      .def("first_dead", &Hub::first_dead, nb::sig("def first_dead(self) -> tuple | None"))
      .def("remove_dead", &Hub::remove_dead)
      .def("first_late", &Hub::first_late, nb::sig("def first_late(self) -> tuple | None"))
      .def("remove_late", &Hub::remove_late)
      .def("listen", &Hub::listen, "fds"_a, "alarm_ns"_a)
      .def("raise_news", &Hub::raise_news)
      .def_prop_ro("has_news", &Hub::has_news)
      .def("set_deadlines", &Hub::set_deadlines, "reset_ns"_a, "step_ns"_a, "message_ns"_a, "build_ns"_a)
      .def("doing", &Hub::doing, "worker"_a)
      .def("progress", &Hub::progress, "env"_a)
      .def("seeded", &Hub::seeded, "env"_a)
      .def("env_of", &Hub::env_of, "slot"_a)
      .def("worker_of", &Hub::worker_of, "slot"_a)
      .def("slot_of", &Hub::slot_of, "env"_a)
      .def("action_row", &Hub::action_row, "slot"_a)
      .def("is_idle", &Hub::is_idle, "slot"_a)
      .def("last_op", &Hub::last_op, "slot"_a)
      .def("drop", &Hub::drop, "slot"_a)
      .def("resend", &Hub::resend, "slot"_a)
      .def("repeat_last", &Hub::repeat_last, "slot"_a, "parts"_a)
      .def("is_fresh", &Hub::is_fresh, "slot"_a)
      .def("end_episode", &Hub::end_episode, "slot"_a, "parts"_a)
      .def("reset_into_row", &Hub::reset_into_row, "slot"_a, "terminal"_a.none(), "is_complete"_a)
      .def("defer_end", &Hub::defer_end, "slot"_a, "ending"_a, "into_reset"_a)
      .def("is_deferred", &Hub::is_deferred, "slot"_a)
      .def("last", &Hub::last, "slot"_a)
      .def("is_over", &Hub::is_over, "slot"_a)
      .def("has_results", &Hub::has_results, "slot"_a)
      .def("reopen", &Hub::reopen, "worker"_a)
      .def("give_up", &Hub::give_up, "worker"_a)
      .def("arrive", &Hub::arrive, "worker"_a, "pidfd"_a, "socket"_a = -1)
      .def("meters", &Hub::meters)
      .def("add_info_column", &Hub::add_info_column, "column"_a)
      .def_prop_ro("num_info_columns", &Hub::num_info_columns)
      .def("pending", &Hub::pending, "part"_a = 0)
      .def("ready", &Hub::ready, "part"_a = 0)
      .def_prop_ro("any_pending", &Hub::any_pending)
      .def_prop_ro("needs_attention", &Hub::needs_attention)
      .def("lost_ns", &Hub::lost_ns)
      .def_prop_ro("waited_ns", &Hub::waited_ns);

  nb::class_<WorkerLoop>(m, "WorkerLoop")
      .def(
          "__init__",
          [](WorkerLoop* self, std::shared_ptr<Arena> arena, Plan plan, std::uint32_t index, std::uint32_t first_env,
             bool is_vector, Autoreset autoreset, bool resets_ahead, std::int64_t spin_ns, bool spins_heedlessly,
             std::uint32_t renew_every, bool renews_in_place, bool has_successors, nb::list envs, nb::object hooks,
             nb::object obs_nest, std::vector<Column> obs, std::vector<Column> final_obs, nb::object action_nest,
             std::vector<Column> actions) {
            new (self) WorkerLoop(std::move(arena), std::move(plan),
                                  {index, first_env, is_vector, autoreset, resets_ahead, spin_ns, spins_heedlessly,
                                   renew_every, renews_in_place, has_successors},
                                  std::move(envs), std::move(hooks), obs_nest, std::move(obs), std::move(final_obs),
                                  action_nest, std::move(actions));
          },
          "arena"_a, "plan"_a, "index"_a, "first_env"_a, "is_vector"_a, "autoreset"_a, "resets_ahead"_a, "spin_ns"_a,
          "spins_heedlessly"_a, "renew_every"_a, "renews_in_place"_a, "has_successors"_a, "envs"_a, "hooks"_a,
          "obs_nest"_a, "obs"_a, "final_obs"_a, "action_nest"_a, "actions"_a)
      .def("run", &WorkerLoop::run)
      .def("run_available", &WorkerLoop::run_available)
      .def("stop", &WorkerLoop::stop)
      .def_prop_ro("current_env", &WorkerLoop::current_env)
      .def("note_word", &WorkerLoop::note_word)
      .def("replace_env", &WorkerLoop::replace_env, "index"_a, "env"_a)
      .def("complete_resets", &WorkerLoop::complete_resets, "on"_a)
      .def("seed_of_episode", &WorkerLoop::seed_of_episode, "env"_a, "base"_a)
      .def("next_seed", &WorkerLoop::next_seed, "env"_a, "base"_a)
      .def("note_seed", &WorkerLoop::note_seed, "env"_a, "base"_a, "n"_a)
      .def("reset_anew", &WorkerLoop::reset_anew, "env"_a)
      .def("add_info_column", &WorkerLoop::add_info_column, "path"_a, "type"_a, "column"_a);

  nb::class_<InfoReader>(m, "InfoReader")
      .def(nb::init<>())
      .def("add", &InfoReader::add, "path"_a, "type"_a)
      .def_prop_ro("num_columns", &InfoReader::num_columns)
      .def_prop_ro("has_final_obs", &InfoReader::has_final_obs)
      .def("infos", &InfoReader::infos, "mask"_a, "arrays"_a.none())
      .def("info", &InfoReader::info, "mask"_a, "arrays"_a.none(), "row"_a)
      .def("stack", &InfoReader::stack, "mask"_a, "arrays"_a.none(), "finals"_a.none());

  m.def("call_all", &call_all, "functions"_a);
  m.attr("FAMILY_VARIABLE") = kFamilyVariable;
  nb::class_<HuntResult>(m, "HuntResult")
      .def_ro("survivors", &HuntResult::survivors)
      .def_ro("problem", &HuntResult::problem);
  m.def("kill_process_tree", &kill_process_tree, "keys"_a, "patience_ms"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("show_keys", &show_keys, "keys"_a);
  m.def("take_in_orphans", &take_in_orphans);
  m.def("fill_reserve", &fill_reserve);
  m.def("signal_group", &signal_group, "pidfd"_a, "pid"_a, "number"_a);
  m.def("reap_group", &reap_group, "pidfd"_a, "pid"_a, "patience_ms"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("exit_code_of", &exit_code_of, "pidfd"_a);
  m.def("tie_life_to", &tie_life_to, "pidfd"_a);
  m.def("trim_output", &trim_output, "fd"_a, "kept"_a);
}
