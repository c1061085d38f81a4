// Bindings of the classes that give access to rows of a pool: batches and rollouts.
#include "bindings/bindings.hpp"
#include "pool/batches/batch.hpp"
#include "pool/rollouts/rollout_views.hpp"
#include "python/collected.hpp"

using namespace nb::literals;

namespace remuda {

namespace {

template <Batch::Attribute attribute>
nb::object get_attribute(Batch& batch) {
  return batch.get(attribute);
}

template <Batch::Attribute attribute>
void set_attribute(Batch& batch, nb::object value) {
  batch.set(attribute, std::move(value));
}

// Returns the observation. The Python subclass builds it if it has several leaves.
nb::object obs_of(nb::handle_t<Batch> self) {
  auto& batch = nb::cast<Batch&>(self);
  if (nb::object made = batch.get(Batch::kObs); made.is_valid()) return made;
  batch.set(Batch::kObs, self.attr("_build_obs")());
  return batch.get(Batch::kObs);
}

// Returns the infos as a list of dicts. If some infos are not in the columns, the Python subclass reads them. This is
// C++, because a Python frame in the traceback of an error would keep the batch alive.
nb::object list_infos(nb::handle_t<Batch> self) {
  if (nb::object infos = nb::cast<const Batch&>(self).info_dicts(); infos.is_valid()) return infos;
  const nb::object infos = self.attr("infos");
  return nb::list(nb::handle(infos));  // converts the sequence to a list
}

nb::object stack_infos(nb::handle_t<Batch> self) {
  nb::object infos = nb::cast<const Batch&>(self).stacked_infos();
  return infos.is_valid() ? infos : self.attr("infos").attr("stack")();
}

// Returns a tuple with a copy of `info` for each row.
nb::object copies_of(const Batch& batch, const nb::dict& info) {
  nb::object copies = nb::steal(PyTuple_New(batch.count()));
  for (std::uint32_t i = 0; copies.is_valid() && i < batch.count(); ++i) {
    PyObject* const copy = PyDict_Copy(info.ptr());
    if (copy == nullptr) nb::raise_python_error();
    if (PyTuple_SetItem(copies.ptr(), i, copy) != 0) nb::raise_python_error();
  }
  if (!copies.is_valid()) nb::raise_python_error();
  return copies;
}

// Returns (obs, rewards, terminations, truncations, has_infos). Calls from Python cost more than these arrays, so faces
// read them in one call.
nb::object results_of(nb::handle_t<Batch> self) {
  auto& batch = nb::cast<Batch&>(self);
  return nb::make_tuple(obs_of(self), batch.get(Batch::kReward), batch.get(Batch::kTerminated),
                        batch.get(Batch::kTruncated), batch.has_infos());
}

// Returns (obs, copied rewards, dones, a copy of `info` for each row). Returns None if the batch has infos.
nb::object copied_results_of(nb::handle_t<Batch> self, const nb::dict& info) {
  auto& batch = nb::cast<Batch&>(self);
  if (batch.has_infos()) return nb::none();
  return nb::make_tuple(obs_of(self), batch.copy_rewards(), batch.done(), copies_of(batch, info));
}

}  // namespace

void bind_batches(nb::module_& m) {
  nb::class_<RolloutViews>(m, "RolloutViews")
      .def("columns", &RolloutViews::columns)
      .def("finals", &RolloutViews::finals)
      .def("computed", &RolloutViews::computed)
      .def("infos", &RolloutViews::infos)
      .def("actions", &RolloutViews::actions)
      .def("is_filled", &RolloutViews::is_filled, nb::sig("def is_filled(self) -> numpy.ndarray"))
      .def("next_frames", &RolloutViews::next_frames, nb::sig("def next_frames(self) -> numpy.ndarray"))
      .def("is_next", &RolloutViews::is_next, "column"_a, "count"_a, "frame"_a);
  nb::class_<Batch>(m, "Batch", nb::type_slots(Collected<Batch>::slots))
      .def(
          "__init__",
          [](Batch* self, nb::object source, nb::object env_ids, nb::list columns, nb::object finals,
             nb::object computed, nb::object infos, nb::object extras) {
            auto or_null = [](nb::object& object) { return object.is_none() ? nb::object() : object; };
            new (self) Batch(std::move(source), std::move(env_ids),
                             {columns, or_null(finals), or_null(computed), or_null(infos)}, or_null(extras), false);
          },
          "source"_a, "env_ids"_a, "columns"_a, "finals"_a.none(), "computed"_a.none(), "infos"_a.none(),
          "extras"_a.none())
      .def("__len__", &Batch::count)
      .def_prop_rw("env_ids", &get_attribute<Batch::kEnvIds>, &set_attribute<Batch::kEnvIds>, nb::lock_self())
      .def_prop_rw("rewards", &get_attribute<Batch::kReward>, &set_attribute<Batch::kReward>, nb::lock_self())
      .def_prop_rw("terminations", &get_attribute<Batch::kTerminated>, &set_attribute<Batch::kTerminated>,
                   nb::lock_self())
      .def_prop_rw("truncations", &get_attribute<Batch::kTruncated>, &set_attribute<Batch::kTruncated>, nb::lock_self())
      .def_prop_rw("obs", &obs_of, &set_attribute<Batch::kObs>, nb::lock_self())
      .def_prop_ro("_source", &Batch::source)
      .def_prop_ro(
          "_pickled", [](const Batch& batch) { return none_or(batch.extras()); },
          nb::for_getter(nb::sig("def _pickled(self) -> dict | None")))
      .def_prop_ro("has_infos", &Batch::has_infos)
      .def_prop_ro("dones", &Batch::done, nb::for_getter(nb::sig("def dones(self) -> numpy.ndarray")), nb::lock_self())
      .def("list_infos", &list_infos, nb::sig("def list_infos(self) -> list[dict[str, typing.Any]]"),
           "Returns the n info dicts, new ones each time. A faster `list(infos)`, which raises the same errors.")
      .def("stack_infos", &stack_infos, nb::sig("def stack_infos(self) -> dict[str, typing.Any]"),
           "A faster `infos.stack()`, which returns and raises the same.")
      .def("_copy_rewards", &Batch::copy_rewards, nb::sig("def _copy_rewards(self) -> numpy.ndarray"), nb::lock_self())
      .def("_results", &results_of, nb::sig("def _results(self) -> tuple[typing.Any, ...]"), nb::lock_self())
      .def("_copied_results", &copied_results_of, "info"_a,
           nb::sig("def _copied_results(self, info: dict) -> tuple[typing.Any, ...] | None"), nb::lock_self())
      .def("_info_mask", &Batch::info_mask, nb::sig("def _info_mask(self) -> numpy.ndarray"))
      .def("_leaves", &Batch::leaves)
      .def("_final_leaves", &Batch::finals, nb::sig("def _final_leaves(self) -> list | None"))
      .def("_computed", &Batch::computed, nb::sig("def _computed(self) -> list | None"))
      .def("_info_arrays", &Batch::infos, nb::sig("def _info_arrays(self) -> list | None"));
}

}  // namespace remuda
