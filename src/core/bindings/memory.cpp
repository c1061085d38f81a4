// Bindings of the arena, of its layout, and of the classes that read arenas.
#include <span>

#include "bindings/bindings.hpp"
#include "ipc/clock.hpp"
#include "pool/batches/lent_frames.hpp"
#include "python/interpreter.hpp"
#include "shm/columns.hpp"
#include "shm/info_reader.hpp"
#include "shm/plan.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

// Deletes an arena without holding the GIL, because unmapping gigabytes takes as long as a few steps. The thread that
// drops the last reference holds the GIL in Python, but may lack it in a fork handler.
void unmap_without_gil(Arena* arena) {
  if (!holds_gil()) {
    arena->forget_calls();
    return Arena::destroy(arena);
  }
  nb::gil_scoped_release release;
  Arena::destroy(arena);
}

std::shared_ptr<Arena> create_arena(std::size_t bytes) {
  nb::gil_scoped_release release;
  return Arena::create(bytes, unmap_without_gil);
}

// Registers a Python function that is called before the arena is unmapped. The function is neither called nor freed if
// the interpreter is finalising, or if a fork handler without the GIL drops the last reference. A fork handler must not
// wait for the GIL.
void before_end(Arena& arena, nb::object call) {
  arena.before_end([call = call.release()] {
    if (is_finalizing()) return;
    nb::gil_scoped_acquire acquire;
    nb::object owned = nb::steal(call);
    PyObject* result = PyObject_CallNoArgs(owned.ptr());
    if (result == nullptr) PyErr_WriteUnraisable(owned.ptr());
    Py_XDECREF(result);
  });
}

std::uintptr_t address_of(const Arena& arena) { return reinterpret_cast<std::uintptr_t>(arena.base()); }

std::shared_ptr<Arena> attach_arena(int fd, std::size_t bytes, bool is_read_only, int wakeup_fd) {
  return Arena::attach(fd, bytes, unmap_without_gil, is_read_only, wakeup_fd);
}

std::shared_ptr<Arena> create_planned_arena(const Plan& plan) {
  nb::gil_scoped_release release;
  return Arena::create(plan.bytes, plan.reserved(), unmap_without_gil);
}

template <class... Sizes>
void make_plan(Plan* self, Sizes... sizes) {
  Plan plan{std::move(sizes)...};
  plan.lay_out();
  new (self) Plan(std::move(plan));
}

nb::list pairs_of(const std::vector<ByteRange>& ranges, std::uintptr_t base = 0) {
  nb::list pairs;
  for (const ByteRange& one : ranges) pairs.append(nb::make_tuple(base + one.offset, one.bytes));
  return pairs;
}

// Copies word by word, so that each word is whole even while a worker writes it.
void copy_words(const Arena& arena, std::uint64_t offset, std::uint64_t bytes, std::vector<std::uint64_t>& to) {
  const auto* words = arena.at<const std::atomic<std::uint64_t>>(offset);
  for (std::uint64_t i = 0; i < bytes / sizeof *words; ++i) to.push_back(words[i].load(std::memory_order_relaxed));
}

nb::bytes as_bytes(const std::vector<std::uint64_t>& words) {
  return nb::bytes(words.data(), words.size() * sizeof(std::uint64_t));
}

// Returns the shortest duration of each bucket of `Durations`, and the end of the last bucket, in ns.
std::vector<std::uint64_t> duration_edges() {
  std::vector<std::uint64_t> edges;
  for (std::uint32_t bucket = 0; bucket <= Durations::kBuckets; ++bucket) edges.push_back(Durations::first_of(bucket));
  return edges;
}

// Returns the structs of figures by name: {name: ([(field, type, count, offset)], size in bytes)}. A type is a NumPy
// type code, or the name of an earlier struct.
nb::dict figure_structs() {
  nb::dict structs;
  const auto add = [&structs](const char* name, std::span<const Field> fields, std::size_t bytes) {
    nb::list list;
    for (const Field& field : fields) list.append(nb::make_tuple(field.name, field.type, field.count, field.offset));
    structs[name] = nb::make_tuple(list, bytes);
  };
  add("Durations", kFieldsOfDurations, sizeof(Durations));
  add("Episode", kFieldsOfEpisode, sizeof(EnvFigures::Episode));
  add("Env", kFieldsOfEnv, sizeof(EnvFigures));
  add("Worker", kFieldsOfWorker, sizeof(WorkerFigures));
  add("Meter", kFieldsOfMeter, sizeof(Meter));
  add("Caller", kFieldsOfCaller, sizeof(CallerFigures));
  return structs;
}

// Returns (figures of all envs, figures of all workers, meters of all workers, figures of the caller, time). Each of
// the first four is the bytes of its structs, one after another. The time is in ns of CLOCK_MONOTONIC.
nb::tuple read_figures(const Arena& arena, const Plan& plan) {
  std::vector<std::uint64_t> envs, workers, meters, caller;
  copy_words(arena, plan.env_figures, sizeof(EnvFigures) * plan.envs, envs);
  copy_words(arena, plan.worker_figures, sizeof(WorkerFigures) * plan.workers, workers);
  for (std::uint32_t w = 0; w < plan.workers; ++w) copy_words(arena, plan.meter(w), sizeof(Meter), meters);
  copy_words(arena, plan.caller_figures, sizeof(CallerFigures), caller);
  return nb::make_tuple(as_bytes(envs), as_bytes(workers), as_bytes(meters), as_bytes(caller), now_ns());
}

}  // namespace

void bind_memory(nb::module_& m) {
  nb::class_<Plan>(m, "Plan")
      .def("__init__",
           &make_plan<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t,
                      std::vector<std::uint64_t>, std::vector<std::uint64_t>, std::uint32_t, bool, std::uint32_t,
                      std::uint64_t, bool, std::uint32_t>,
           "workers"_a, "slots"_a, "envs"_a, "frames"_a, "ring_capacity"_a, "blob_bytes"_a, "action_bytes"_a,
           "column_bytes"_a, "width"_a, "keeps_last"_a, "log_entries"_a, "log_object_bytes"_a, "resumes"_a,
           "rollout_rows"_a)
      .def_ro("actions", &Plan::actions)
      .def_ro("columns", &Plan::columns)
      .def_ro("log_actions", &Plan::log_actions)
      .def_ro("progress", &Plan::progress)
      .def_ro("env_figures", &Plan::env_figures)
      .def_ro("worker_figures", &Plan::worker_figures)
      .def("meter", &Plan::meter, "worker"_a)
      .def_prop_ro("first_kept_row", [](const Plan& plan) { return plan.kept_row(0, 0); })
      .def_ro("bytes", &Plan::bytes)
      .def_prop_ro("rows", &Plan::rows)
      .def_prop_ro("action_rows", &Plan::action_rows)
      .def_prop_ro(
          "reserved", [](const Plan& plan) { return pairs_of(plan.reserved()); },
          "The (offset, bytes) of each range that has memory from the start.");

  nb::class_<Column>(m, "Column")
      .def("read", &Column::read, "row"_a)
      .def(
          "view",
          [](nb::handle_t<Column> self, std::uint32_t rows) {
            return nb::cast<const Column&>(self).view(0, rows, self);
          },
          "rows"_a, "The first rows, as an array of shape (rows, *shape).",
          nb::sig("def view(self, rows: int) -> numpy.ndarray"));

  nb::class_<Arena>(m, "Arena")
      // The `create` functions release the GIL, because reserving gigabytes takes a while.
      .def_static("create", &create_arena, "bytes"_a)
      .def_static("create", &create_planned_arena, "plan"_a)
      .def_static("attach", &attach_arena, "fd"_a, "bytes"_a, "is_read_only"_a = false, "wakeup_fd"_a = -1)
      .def_prop_ro_static("is_sparse", [](nb::handle) { return Arena::kIsSparse; })
      .def(
          "column",
          [](Arena& arena, nb::object dtype, std::vector<npy_intp> shape, std::uint64_t offset) {
            return Column(std::move(dtype), std::move(shape), arena.at<std::byte>(offset));
          },
          "dtype"_a, "shape"_a, "offset"_a, nb::keep_alive<0, 1>())
      .def("close_fd", &Arena::close_fd)
      .def_prop_ro("fd", &Arena::fd)
      .def_prop_ro("wakeup_fd", [](const Arena& arena) { return arena.wakeup().fd(); })
      .def("before_end", &before_end, "call"_a)
      .def_prop_ro(
          "lasting", [](const Arena& arena) { return pairs_of(arena.lasting(), address_of(arena)); },
          "The (address, bytes) of each range that keeps its memory for the arena's whole life.")
      .def_prop_ro("address", &address_of)
      .def_prop_ro("bytes", &Arena::bytes);
  m.def("arena_of", &arena_of, "array"_a, nb::sig("def arena_of(array: numpy.ndarray) -> Arena | None"),
        "The arena whose memory an array is a view of.");

  m.def("read_figures", &read_figures, "arena"_a, "plan"_a);
  m.def("duration_edges", &duration_edges);
  m.def("figure_structs", &figure_structs, nb::sig("def figure_structs() -> dict[str, tuple[list, int]]"));

  nb::class_<InfoReader>(m, "InfoReader")
      .def(nb::init<>())
      .def("add", &InfoReader::add, "path"_a, "type"_a, nb::lock_self())
      .def_prop_ro("num_columns", &InfoReader::num_columns)
      .def("infos", nb::overload_cast<nb::handle, nb::handle>(&InfoReader::infos, nb::const_), "mask"_a,
           "arrays"_a.none(), nb::lock_self())
      .def("info", &InfoReader::info, "mask"_a, "arrays"_a.none(), "row"_a, nb::lock_self())
      .def("stack", nb::overload_cast<nb::handle, nb::handle, nb::handle>(&InfoReader::stack), "mask"_a,
           "arrays"_a.none(), "finals"_a.none(), nb::lock_self());
}

}  // namespace remuda
