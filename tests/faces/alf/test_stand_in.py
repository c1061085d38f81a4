"""``alf_stand_in``, a replacement of ALF in tests, has ALF's names, signatures and behaviour. Needs ALF."""

from __future__ import annotations

import inspect
import types
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import alf
import alf.data_structures
import alf.environments.alf_environment
import alf.nest
import alf.tensor_specs
import alf.utils.schedulers
import alf_stand_in.alf as stand_in
import alf_stand_in.alf.environments.alf_environment
import alf_stand_in.alf.utils.schedulers
import numpy as np
import pytest
import torch
from alf_face_envs import STANDS_IN

pytestmark = pytest.mark.skipif(STANDS_IN, reason="there is no ALF to compare with")

Pair = namedtuple("Pair", "second first")
NESTS: list[Any] = [
    1,
    (),
    {},
    [1, 2],
    (1, [2, (3,)]),
    {"b": 1, "a": {"d": 2, "c": 3}},
    Pair(1, 2),
    Pair({"z": 1, "y": (2, 3)}, Pair([4], ())),
]

MODULES: list[tuple[Any, Any]] = [
    (stand_in, alf),
    (stand_in.data_structures, alf.data_structures),
    (stand_in.nest, alf.nest),
    (stand_in.tensor_specs, alf.tensor_specs),
    (alf_stand_in.alf.environments.alf_environment, alf.environments.alf_environment),
    (alf_stand_in.alf.utils.schedulers, alf.utils.schedulers),
]


def own_names(module: Any) -> Iterator[str]:
    """Yields the public functions and classes that the module defines, or that the package exports."""
    for name, value in vars(module).items():
        defined_in = getattr(value, "__module__", "")
        own = defined_in.startswith("alf_stand_in") if hasattr(module, "__path__") else defined_in == module.__name__
        if own and not name.startswith("_"):
            yield name


NAMES = [(ours, original, name) for ours, original in MODULES for name in own_names(ours)]


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Returns the parameters' names and whether each has no default."""
    described = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [(one.name, one.default is one.empty) for one in described if one.kind is not one.VAR_POSITIONAL]


@pytest.mark.parametrize(
    ("ours", "original", "name"), NAMES, ids=[f"{ours.__name__}.{name}" for ours, _, name in NAMES]
)
def test_names_and_signatures_are_those_of_alf(ours: Any, original: Any, name: str) -> None:
    one, other = getattr(ours, name), getattr(original, name)
    if not isinstance(one, type):
        assert parameters(one) == parameters(other)
        return
    for method, value in vars(one).items():
        if isinstance(value, types.FunctionType) and not method.startswith("_"):
            assert parameters(value) == parameters(getattr(other, method)), method
        elif isinstance(value, property) or not method.startswith("_"):
            assert hasattr(other, method), method


@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_nests_are_handled_as_by_alf(nest: Any) -> None:
    leaves = alf.nest.flatten(nest)
    assert stand_in.nest.flatten(nest) == leaves
    assert stand_in.nest.pack_sequence_as(nest, leaves) == alf.nest.pack_sequence_as(nest, leaves) == nest
    double = [module.nest.map_structure(lambda *xs: sum(xs), nest, nest) for module in (stand_in, alf)]
    assert double[0] == double[1]
    assert type(double[0]) is type(double[1])


SPECS: list[Any] = [
    lambda module: module.TensorSpec(()),
    lambda module: module.TensorSpec([3, 4], torch.uint8),
    lambda module: module.TensorSpec((2,), "bool"),
    lambda module: module.BoundedTensorSpec((), torch.int64, 0, 5),
    lambda module: module.BoundedTensorSpec((2,)),
    lambda module: module.BoundedTensorSpec((2,), torch.float64, minimum=[0, -1], maximum=3),
    lambda module: module.BoundedTensorSpec((2,), torch.float64, minimum=[0, -1], maximum=4),
]


@pytest.mark.parametrize("make", SPECS)
def test_specs_equal_those_of_alf(make: Any) -> None:
    ours, original = make(stand_in), make(alf)
    for attribute in ("shape", "dtype", "dtype_str"):
        assert getattr(ours, attribute) == getattr(original, attribute)
    assert ours.is_bounded() is original.is_bounded()
    assert repr(ours) == repr(original)
    assert [ours == other(stand_in) for other in SPECS] == [original == other(alf) for other in SPECS]
    for bound in ("minimum", "maximum") if ours.is_bounded() else ():
        one, other = getattr(ours, bound), getattr(original, bound)
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())


def test_time_steps_equal_those_of_alf() -> None:
    ours, original = stand_in.data_structures.TimeStep, alf.data_structures.TimeStep
    assert ours._fields == original._fields
    assert ours() == original()
    kinds = stand_in.data_structures.StepType, alf.data_structures.StepType
    for name in ("FIRST", "MID", "LAST"):
        one, other = (getattr(kind, name) for kind in kinds)
        assert (one, type(one)) == (other, type(other))
    for step_type in range(3):
        one, other = ours(np.int32(step_type)), original(np.int32(step_type))
        for method_name in ("is_first", "is_mid", "is_last"):
            assert getattr(one, method_name)() == getattr(other, method_name)()
    specs = [
        module.data_structures.time_step_spec(
            {"a": module.TensorSpec((2,))}, [module.BoundedTensorSpec(())], module.TensorSpec(())
        )
        for module in (stand_in, alf)
    ]
    assert repr(specs[0]) == repr(specs[1])


@pytest.mark.parametrize("kind", [stand_in.data_structures.TimeStep, alf.data_structures.TimeStep])
def test_cpu_caches_its_copy_as_in_alf(kind: Any) -> None:
    step = kind(reward=torch.ones(2), observation={"a": torch.zeros(1), "b": 3})
    assert step.cpu() is step.cpu()
    assert type(step.cpu()) is kind
    assert step.cpu().observation["b"] == 3
    step._cpu = "kept"
    assert step.cpu() == "kept"


def script(module: Any, base: type) -> list[Any]:
    """Runs an env with that base class and returns all that it returns."""

    class Env(base):  # type: ignore[misc]
        def action_spec(self) -> Any:
            return module.TensorSpec((1,))

        def observation_spec(self) -> Any:
            return module.TensorSpec((2,))

        def env_info_spec(self) -> Any:
            return {}

        def _reset(self) -> Any:
            return "first"

        def _step(self, action: Any) -> Any:
            return f"after {action}"

        def close(self) -> None:
            results.append("closed")

    results: list[Any] = []
    with Env() as env:
        results += [env.num_tasks, env.task_names, env.batched, env.batch_size, env.is_tensor_based]
        results += [repr(env.reward_spec()), repr(env.time_step_spec()), env.current_time_step()]
        results += [env.step(1), env.current_time_step(), env.step(2), env.current_time_step(), env.reset()]
        results.append(env.sync_progress())
        for unsupported in (env.get_info, env.render, lambda: env.seed(1)):
            with pytest.raises(NotImplementedError):
                unsupported()
    with pytest.raises(RuntimeError, match="batch_size"):
        _ = type("Batched", (Env,), {"batched": True})().batch_size
    with pytest.raises(TypeError, match="abstract"):
        base()
    return results


def test_the_base_class_of_envs_behaves_as_in_alf() -> None:
    ours = alf_stand_in.alf.environments.alf_environment.AlfEnvironment
    assert script(stand_in, ours) == script(alf, alf.environments.alf_environment.AlfEnvironment)


def test_progress_is_kept_as_in_alf() -> None:
    results = []
    for schedulers in (alf_stand_in.alf.utils.schedulers, alf.utils.schedulers):
        before = dict(schedulers.get_all_progresses())
        schedulers.update_progress("env_steps", 3)
        schedulers.update_all_progresses({"iterations": 4.0})
        results.append((dict(schedulers.get_all_progresses()), schedulers.get_progress("iterations")))
        schedulers.update_all_progresses(before)
    assert results[0] == results[1]


def test_configuration_and_device_are_those_of_alf() -> None:
    assert stand_in.get_default_device() == alf.get_default_device() == "cpu"
    assert stand_in.get_config_value("TrainerConfig.sync_progress_to_envs") is alf.get_config_value(
        "TrainerConfig.sync_progress_to_envs"
    )
    assert stand_in.get_handled_pre_configs() == alf.get_handled_pre_configs()
    assert stand_in.configurable(_decorated) is _decorated
    assert stand_in.configurable("Name")(_decorated) is _decorated


def _decorated() -> None: ...
