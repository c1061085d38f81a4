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
  nb::class_<WorkerSpec>(m, "WorkerSpec", "The configuration of a worker's loop, see worker/worker_port.hpp.")
      .def(nb::init<std::uint32_t, std::uint32_t, bool, Autoreset, bool, std::int64_t, bool, std::uint64_t,
                    std::uint32_t, bool, bool, bool>(),
           nb::kw_only(), "index"_a, "first_env"_a, "is_vector"_a, "autoreset"_a, "resets_ahead"_a, "spin_ns"_a,
           "ignore_load"_a, "publish_ns"_a, "renew_every"_a, "watches_memory"_a, "renews_in_place"_a,
           "has_successors"_a);
  nb::class_<WorkerLoop>(m, "WorkerLoop", nb::type_slots(Collected<WorkerLoop>::slots))
      .def(nb::init<std::shared_ptr<Arena>, Plan, WorkerSpec, nb::list, nb::object, nb::handle, std::vector<Column>,
                    std::vector<Column>, nb::handle, std::vector<Column>, std::vector<nb::object>, std::vector<Column>,
                    std::size_t>(),
           "arena"_a, "plan"_a, "spec"_a, "envs"_a, "hooks"_a, "obs_nest"_a, "obs"_a, "final_obs"_a, "action_nest"_a,
           "actions"_a, "functions"_a, "computed"_a, "step_columns"_a)
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
      .def("not_resumed", &WorkerLoop::not_resumed, "env"_a)
      .def("note_call", &WorkerLoop::note_call, "env"_a, "is_lasting"_a)
      .def("next_seed", &WorkerLoop::next_seed, "env"_a, "base"_a, "in_each"_a)
      .def("note_seed", &WorkerLoop::note_seed, "env"_a, "base"_a, "n"_a)
      .def("reset_anew", &WorkerLoop::reset_anew, "env"_a)
      .def("place_of", &WorkerLoop::place_of, "env"_a)
      .def("add_info_column", &WorkerLoop::add_info_column, "path"_a, "type"_a, "column"_a);
  nb::class_<RemotePort>(m, "RemotePort", "The worker's end of a port whose envs run on another machine.")
      .def(nb::init<std::shared_ptr<Arena>, const Plan&, const WorkerSpec&, std::uint32_t, nb::object, nb::object>(),
           "arena"_a, "plan"_a, "spec"_a, "envs"_a, "receive"_a, "send"_a)
      .def_prop_ro("has_command", &RemotePort::has_command)
      .def("take", &RemotePort::take, "commands"_a)
      .def("answer", &RemotePort::answer, "env"_a, "count"_a, "flags"_a, "parts"_a.none())
      .def("answer_message", &RemotePort::answer_message, "sequence"_a, "flags"_a, "parts"_a.none())
      .def("note_record", &RemotePort::note_record);
}

}  // namespace remuda
