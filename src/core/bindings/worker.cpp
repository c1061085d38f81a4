// Bindings of the worker's loop.
#include "bindings/bindings.hpp"
#include "python/collected.hpp"
#include "worker/loop.hpp"
#include "worker/remote_port.hpp"

using namespace nb::literals;

namespace remuda {

void bind_worker(nb::module_& m) {
  static const nb::exception<TakenOver> taken_over(m, "TakenOver", PyExc_BaseException);
  TakenOver::type = taken_over;
  nb::class_<WorkerSpec>(m, "WorkerSpec", "The configuration of a worker's loop, see worker/worker_spec.hpp.")
      .def(
          "__init__",
          [](WorkerSpec* self, std::uint32_t index, std::uint32_t first_env, bool is_vector, Autoreset autoreset,
             bool resets_ahead, std::int64_t spin_ns, bool spins_heedlessly, std::uint64_t publish_ns,
             std::uint32_t renew_every, bool watches_memory, bool renews_in_place, bool has_successors) {
            new (self) WorkerSpec{index,        first_env,      is_vector,        autoreset,
                                  resets_ahead, spin_ns,        spins_heedlessly, publish_ns,
                                  renew_every,  watches_memory, renews_in_place,  has_successors};
          },
          nb::kw_only(), "index"_a, "first_env"_a, "is_vector"_a, "autoreset"_a, "resets_ahead"_a, "spin_ns"_a,
          "spins_heedlessly"_a, "publish_ns"_a, "renew_every"_a, "watches_memory"_a, "renews_in_place"_a,
          "has_successors"_a);
  nb::class_<WorkerLoop>(m, "WorkerLoop", nb::type_slots(Collected<WorkerLoop>::slots))
      .def(
          "__init__",
          [](WorkerLoop* self, std::shared_ptr<Arena> arena, Plan plan, const WorkerSpec& spec, nb::list envs,
             nb::object hooks, nb::object obs_nest, std::vector<Column> obs, std::vector<Column> final_obs,
             nb::object action_nest, std::vector<Column> actions, std::vector<nb::object> functions,
             std::vector<Column> computed) {
            new (self) WorkerLoop(std::move(arena), std::move(plan), spec, std::move(envs), std::move(hooks), obs_nest,
                                  std::move(obs), std::move(final_obs), action_nest, std::move(actions),
                                  {std::move(functions), std::move(computed)});
          },
          "arena"_a, "plan"_a, "spec"_a, "envs"_a, "hooks"_a, "obs_nest"_a, "obs"_a, "final_obs"_a, "action_nest"_a,
          "actions"_a, "functions"_a, "computed"_a)
      .def("run", &WorkerLoop::run)
      .def("run_available", &WorkerLoop::run_available)
      .def("run_env_code", &WorkerLoop::run_env_code, "code"_a)
      .def("take_over", &WorkerLoop::take_over, "task"_a)
      .def("give_up", &WorkerLoop::give_up, "stand_in"_a, "error"_a)
      .def("stop", &WorkerLoop::stop)
      .def_prop_ro("current_env", &WorkerLoop::current_env)
      .def("note_record", &WorkerLoop::note_record)
      .def("note_info", &WorkerLoop::note_info, "ns"_a)
      .def("name_info", &WorkerLoop::name_info, "key"_a, "bytes"_a)
      .def("replace_env", &WorkerLoop::replace_env, "index"_a, "env"_a.none())
      .def("complete_resets", &WorkerLoop::complete_resets, "on"_a)
      .def("seed_of_episode", &WorkerLoop::seed_of_episode, "env"_a, "base"_a)
      .def("next_seed", &WorkerLoop::next_seed, "env"_a, "base"_a)
      .def("note_seed", &WorkerLoop::note_seed, "env"_a, "base"_a, "n"_a)
      .def("reset_anew", &WorkerLoop::reset_anew, "env"_a)
      .def("place_of", &WorkerLoop::place_of, "env"_a)
      .def("add_info_column", &WorkerLoop::add_info_column, "path"_a, "type"_a, "column"_a);
  nb::class_<RemotePort>(m, "RemotePort", "The worker's end of a port whose envs run on another machine.")
      .def(nb::init<std::shared_ptr<Arena>, const Plan&, const WorkerSpec&, std::uint32_t, nb::object, nb::object>(),
           "arena"_a, "plan"_a, "spec"_a, "envs"_a, "receive"_a, "send"_a)
      .def("take", &RemotePort::take, "commands"_a)
      .def("answer", &RemotePort::answer, "env"_a, "count"_a, "flags"_a, "parts"_a.none(), "until"_a)
      .def("answer_message", &RemotePort::answer_message, "sequence"_a, "flags"_a, "parts"_a.none());
}

}  // namespace remuda
