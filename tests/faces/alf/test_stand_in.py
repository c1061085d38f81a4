"""What stands for ALF where there is none is as ALF is: names, signatures, and what they do. It needs ALF."""

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
    """Public names of functions and classes that the module defines, or the package exports."""
    for name, value in vars(module).items():
        defined_in = getattr(value, "__module__", "")
        own = defined_in.startswith("alf_stand_in") if hasattr(module, "__path__") else defined_in == module.__name__
        if own and not name.startswith("_"):
            yield name


NAMES = [(ours, theirs, name) for ours, theirs in MODULES for name in own_names(ours)]


def parameters(function: Any) -> list[tuple[str, Any]]:
    """Names and whether there is a default."""
    described = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [(one.name, one.default is one.empty) for one in described if one.kind is not one.VAR_POSITIONAL]


@pytest.mark.parametrize(("ours", "theirs", "name"), NAMES, ids=[f"{ours.__name__}.{name}" for ours, _, name in NAMES])
def test_names_and_signatures(ours: Any, theirs: Any, name: str) -> None:
    one, other = getattr(ours, name), getattr(theirs, name)
    if not isinstance(one, type):
        assert parameters(one) == parameters(other)
        return
    for method, value in vars(one).items():
        if isinstance(value, types.FunctionType) and not method.startswith("_"):
            assert parameters(value) == parameters(getattr(other, method)), method
        elif isinstance(value, property) or not method.startswith("_"):
            assert hasattr(other, method), method


@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_nests(nest: Any) -> None:
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
def test_specs(make: Any) -> None:
    ours, theirs = make(stand_in), make(alf)
    for attribute in ("shape", "dtype", "dtype_str"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert ours.is_bounded() is theirs.is_bounded()
    assert repr(ours) == repr(theirs)
    assert [ours == other(stand_in) for other in SPECS] == [theirs == other(alf) for other in SPECS]
    for bound in ("minimum", "maximum") if ours.is_bounded() else ():
        one, other = getattr(ours, bound), getattr(theirs, bound)
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())


def test_time_steps() -> None:
    ours, theirs = stand_in.data_structures.TimeStep, alf.data_structures.TimeStep
    assert ours._fields == theirs._fields
    assert ours() == theirs()
    kinds = stand_in.data_structures.StepType, alf.data_structures.StepType
    for name in ("FIRST", "MID", "LAST"):
        one, other = (getattr(kind, name) for kind in kinds)
        assert (one, type(one)) == (other, type(other))
    for step_type in range(3):
        one, other = ours(np.int32(step_type)), theirs(np.int32(step_type))
        for asked in ("is_first", "is_mid", "is_last"):
            assert getattr(one, asked)() == getattr(other, asked)()
    specs = [
        module.data_structures.time_step_spec(
            {"a": module.TensorSpec((2,))}, [module.BoundedTensorSpec(())], module.TensorSpec(())
        )
        for module in (stand_in, alf)
    ]
    assert repr(specs[0]) == repr(specs[1])


@pytest.mark.parametrize("kind", [stand_in.data_structures.TimeStep, alf.data_structures.TimeStep])
def test_what_is_kept_of_a_time_step(kind: Any) -> None:
    step = kind(reward=torch.ones(2), observation={"a": torch.zeros(1), "b": 3})
    assert step.cpu() is step.cpu()
    assert type(step.cpu()) is kind
    assert step.cpu().observation["b"] == 3
    step._cpu = "kept"
    assert step.cpu() == "kept"


def script(module: Any, base: type) -> list[Any]:
    """What an env of that base does, told from outside."""

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
            told.append("closed")

    told: list[Any] = []
    with Env() as env:
        told += [env.num_tasks, env.task_names, env.batched, env.batch_size, env.is_tensor_based]
        told += [repr(env.reward_spec()), repr(env.time_step_spec()), env.current_time_step()]
        told += [env.step(1), env.current_time_step(), env.step(2), env.current_time_step(), env.reset()]
        told.append(env.sync_progress())
        for asked in (env.get_info, env.render, lambda: env.seed(1)):
            with pytest.raises(NotImplementedError):
                asked()
    with pytest.raises(RuntimeError, match="batch_size"):
        _ = type("Batched", (Env,), {"batched": True})().batch_size
    with pytest.raises(TypeError, match="abstract"):
        base()
    return told


def test_the_base_of_envs() -> None:
    ours = alf_stand_in.alf.environments.alf_environment.AlfEnvironment
    assert script(stand_in, ours) == script(alf, alf.environments.alf_environment.AlfEnvironment)


def test_progress() -> None:
    told = []
    for schedulers in (alf_stand_in.alf.utils.schedulers, alf.utils.schedulers):
        before = dict(schedulers.get_all_progresses())
        schedulers.update_progress("env_steps", 3)
        schedulers.update_all_progresses({"iterations": 4.0})
        told.append((dict(schedulers.get_all_progresses()), schedulers.get_progress("iterations")))
        schedulers.update_all_progresses(before)
    assert told[0] == told[1]


def test_configuration_and_device() -> None:
    assert stand_in.get_default_device() == alf.get_default_device() == "cpu"
    assert stand_in.get_config_value("TrainerConfig.sync_progress_to_envs") is alf.get_config_value(
        "TrainerConfig.sync_progress_to_envs"
    )
    assert stand_in.get_handled_pre_configs() == alf.get_handled_pre_configs()
    assert stand_in.configurable(_decorated) is _decorated
    assert stand_in.configurable("Name")(_decorated) is _decorated


def _decorated() -> None: ...
