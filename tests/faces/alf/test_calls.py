"""Calls, attributes, options and actions of the ALF face, and the errors for wrong ones."""

from __future__ import annotations

import functools
import gc
import logging
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
import torch
from alf.data_structures import StepType, TimeStep
from alf.environments.alf_environment import AlfEnvironment
from alf.tensor_specs import BoundedTensorSpec, TensorSpec
from alf.utils.schedulers import get_all_progresses, update_all_progresses, update_progress
from alf_face_envs import (
    BatchedAlfEnv,
    CountingAlfEnv,
    Move,
    NestedAlfEnv,
    batched_of,
    counting,
    hooked,
)
from pool_envs import Gate

import remuda
from remuda.alf import (
    ClosedError,
    EnvError,
    FastParallelEnvironment,
    InvalidActionError,
    ParallelAlfEnvironment,
    ProcessEnvironment,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

KINDS = [FastParallelEnvironment, ParallelAlfEnvironment]


# -- specs, processes and options ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_specs_and_attributes_are_those_of_the_env(kind: Any) -> None:
    env = NestedAlfEnv(0)
    with kind([NestedAlfEnv] * 3, start_serially=False, num_spare_envs_for_reload=1) as envs:
        assert isinstance(envs, AlfEnvironment)
        for spec in ("observation_spec", "action_spec", "reward_spec", "time_step_spec", "env_info_spec"):
            assert getattr(envs, spec)() == getattr(env, spec)()
            assert getattr(envs.envs[1], spec)() == getattr(env, spec)()
        assert (envs.is_tensor_based, envs.batched, envs.batch_size) == (True, True, 2)
        assert (envs.num_tasks, envs.task_names) == (2, ["0", "1"])
        assert (envs.num_spare_envs_for_reload, len(envs.envs)) == (1, 2)
        assert envs.current_time_step() is None
        with pytest.raises(NotImplementedError):
            envs.get_info()


def test_each_env_has_its_own_process_by_default() -> None:
    with FastParallelEnvironment(counting(4)) as each, FastParallelEnvironment(counting(4), num_workers=2) as shared:
        assert len(set(each.call_envs_with_same_args("pid"))) == len(each.processes) == 4
        assert len(set(shared.call_envs_with_same_args("pid"))) == len(shared.processes) == 2
        assert [process.pid for process in each.processes] == each.call_envs_with_same_args("pid")
    assert not any(process.is_alive() for process in each.processes)


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_the_constructor_receives_the_env_id(start_method: Any) -> None:
    options = {"num_workers": 2, "start_method": start_method, "preload": ["alf_face_envs"]}
    with FastParallelEnvironment(counting(3), **options) as envs:
        assert [env.env_id for env in envs.envs] == [0, 1, 2]
        assert [env.env_id for env in envs._envs] == [0, 1, 2]  # ALF's tests use this name
        assert envs.reset().observation[:, 0].tolist() == [0, 1, 2]


def test_env_ids_are_row_numbers_even_if_envs_return_others() -> None:
    with FastParallelEnvironment([lambda env_id: CountingAlfEnv(7)] * 3) as envs:
        assert envs.reset().env_id.tolist() == [0, 1, 2]
        assert envs.reset().env_id.dtype == torch.int32


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_num_threads_per_env_sets_the_threads_of_pytorch(threads: int) -> None:
    with FastParallelEnvironment(counting(1), torch_num_threads_per_env=threads) as envs:
        assert envs.call_envs_with_same_args("torch_threads") == [threads]


def test_the_serial_backend_keeps_the_threads_of_pytorch() -> None:
    before = torch.get_num_threads()
    with FastParallelEnvironment(counting(2), backend="serial", torch_num_threads_per_env=before + 1) as envs:
        envs.reset()
        assert envs.call_envs_with_same_args("pid") == [os.getpid()] * 2
    assert torch.get_num_threads() == before


def test_by_default_envs_are_built_one_after_another(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    def note(env: CountingAlfEnv) -> None:
        with notes.open("a") as file:
            print(env.tag, file=file, end="", flush=True)
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:  # gives a second build time to start, if builds ran in parallel
                pass
            print(env.tag, file=file, end="")

    with FastParallelEnvironment(counting(6, build=note)):
        assert notes.read_text() == "001122334455"


@pytest.mark.parametrize("kind", KINDS)
def test_without_start_serially_envs_are_built_in_parallel(kind: Any, tmp_path: Path) -> None:
    """The first env's build waits until the second env's build has begun."""
    gate = Gate(tmp_path)
    builds = [lambda _: gate.wait(), lambda _: gate.let_pass()]
    constructors = [functools.partial(CountingAlfEnv, build=build) for build in builds]
    with kind(constructors, start_serially=False) as envs:
        assert envs.reset().is_first().all()


def test_options_of_the_pool_are_accepted(tmp_path: Path) -> None:
    envs = FastParallelEnvironment(
        counting(2),
        frames=2,
        start_method="forkserver",
        preload=["alf_face_envs"],
        start_timeout=60,
        pin_workers=True,
        max_concurrency=1,
        faults=remuda.FaultPolicy("restart"),
        crash_dir=tmp_path / "records",
        worker_output=tmp_path / "output",
        log_advice=False,
        name="Env of mine",
    )
    envs.reset()
    envs.step(torch.tensor([1, 2]))
    envs.close()
    assert [process.name for process in envs.processes] == ["Env of mine-0", "Env of mine-1"]
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["worker-0.log", "worker-1.log"]


@pytest.mark.parametrize(
    "constructors", [counting(2), [NestedAlfEnv] * 2, batched_of(NestedAlfEnv, 2, 2)], ids=["plain", "nests", "batched"]
)
def test_num_workers_auto_measures_and_chooses_a_number(constructors: Any) -> None:
    with FastParallelEnvironment(constructors, num_workers="auto") as envs:
        assert 1 <= len(envs.processes) <= 2
        assert envs.reset().is_first().all()


# -- envs with other specs ------------------------------------------------------------------------------


class OddEnv(CountingAlfEnv):
    """An env that returns the attributes and specs in `odd` in place of its own."""

    def __init__(self, env_id: int, **odd: Any) -> None:
        super().__init__(env_id)
        self.odd = odd

    def __getattribute__(self, name: str) -> Any:
        odd = object.__getattribute__(self, "__dict__").get("odd", {})
        if name not in odd:
            return super().__getattribute__(name)
        return (lambda: odd[name]) if name.endswith("_spec") else odd[name]


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "bounds of actions": ({"action_spec": BoundedTensorSpec((), torch.int64, 0, 5)}, "same action spec"),
    "structure of actions": ({"action_spec": [BoundedTensorSpec((), torch.int64, 0, 999)]}, "same action spec"),
    "dtype of observations": ({"observation_spec": TensorSpec((4,), torch.int32)}, "same time_step_spec"),
    "kind of observations": ({"observation_spec": {"a": TensorSpec((4,), torch.int64)}}, "same time_step_spec"),
    "bounds of observations": (
        {"observation_spec": BoundedTensorSpec((4,), torch.int64, -1, 99)},
        "same time_step_spec",
    ),
    "rewards": ({"reward_spec": TensorSpec((2,))}, "same time_step_spec"),
    "shape of infos": ({"env_info_spec": {"steps": TensorSpec((1,))}}, "same env_info_spec"),
    "no infos": ({"env_info_spec": {}}, "same env_info_spec"),
    "batch size": ({"batch_size": 2}, "same batch_size"),
    "batched": ({"batched": True, "batch_size": 1}, "same batched"),
    "tensor-based": ({"is_tensor_based": True}, "must be array-based"),
}


@pytest.mark.parametrize(("odd", "message"), ODD.values(), ids=ODD.keys())
def test_envs_with_different_specs_are_refused(odd: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^All environments must (have the )?{message.removeprefix('must ')}"):
        FastParallelEnvironment([*counting(2), functools.partial(OddEnv, **odd)], start_serially=False)


def test_batched_envs_cannot_have_spares() -> None:
    with pytest.raises(RuntimeError, match="num_spare_envs_for_reload=0 with envs that are batched, got 1"):
        FastParallelEnvironment(batched_of(CountingAlfEnv, 2, 2), num_spare_envs_for_reload=1)


def test_blocking_envs_cannot_have_spares() -> None:
    with pytest.raises(AssertionError, match="Spare envs only allowed in non-blocking mode"):
        ParallelAlfEnvironment(counting(2), blocking=True, num_spare_envs_for_reload=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start_method": "teleport"}, ValueError, "start_method .* 'spawn'.* got 'teleport'"),
        ({"num_spare_envs_for_reload": 2}, ValueError, "num_spare_envs_for_reload"),
        ({"num_workers": 3}, ValueError, "num_workers .* got 3"),
        (
            {"num_wrokers": 3},
            TypeError,
            r"^FastParallelEnvironment\(\) got .* 'num_wrokers'; did you mean num_workers=\?",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FastParallelEnvironment(counting(2), **options)


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        (FastParallelEnvironment, "num_worker", "num_workers"),
        (ParallelAlfEnvironment, "num_worker", "num_workers"),
        (ProcessEnvironment, "start_methd", "start_method"),
    ],
)
def test_the_error_for_a_misspelt_keyword_suggests_the_right_one(kind: Any, given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) got .* '{given}'; did you mean {meant}=\?"):
        kind(counting(1), **{given: 1})


@pytest.mark.parametrize(("given", "name"), [("suite", r"env_constructors"), (["suite"], r"env_constructors\[0\]")])
@pytest.mark.parametrize("kind", [FastParallelEnvironment, ParallelAlfEnvironment])
def test_the_error_for_a_text_in_place_of_constructors_says_what_to_write(kind: Any, given: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^expected {name} to be .*, got 'suite'; write \[make_env\] \* 8, where"):
        kind(given)


def test_an_empty_list_of_envs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one env"):
        FastParallelEnvironment([])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": np.zeros(5, np.int64)}, r"shape \(4,\) at time_step.observation, got one of shape \(5,\)"),
        ({"env_info": {"step": 1}}, r"a dict with the keys \['steps'\] at time_step.env_info, as the spec says"),
        ({"env_info": ()}, r"a dict with the keys \['steps'\] at time_step.env_info, as the spec says, got \(\)"),
        ({"untransformed": np.zeros(1)}, r"0 values at time_step.untransformed"),
        ({"observation": np.full(4, 0.5)}, r"shape \(4,\) and dtype int64 at obs\[3\], got .* float64"),
    ],
)
@pytest.mark.parametrize("phase", ["reset", "step"])
def test_a_time_step_that_does_not_fit_its_spec_is_an_env_error(
    phase: str, changes: dict[str, Any], message: str
) -> None:
    spoil = lambda env: env._time_step(StepType.MID)._replace(**changes)  # noqa: E731
    with FastParallelEnvironment(hooked(2, **{phase: spoil})) as envs, pytest.raises(EnvError, match=message):
        envs.reset()
        envs.step(torch.tensor([1, 1]))


# -- actions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [np.array([3, 4]), [3, 4], torch.tensor([3.0, 4.0]), torch.tensor([3, 4]).int()])
def test_arrays_lists_and_other_dtypes_are_accepted_as_actions(action: Any) -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        envs.reset()
        assert envs.step(action).reward.tolist() == [3, 4]


def test_transposed_tensors_and_tensors_with_gradients_are_accepted_as_actions() -> None:
    with FastParallelEnvironment([NestedAlfEnv] * 2) as envs:
        envs.reset()
        velocity = torch.arange(4.0).reshape(2, 2).T.requires_grad_()
        action = {"move": Move(velocity, torch.tensor([1, 2])), "bits": [torch.ones(2, 2)]}
        time_step = envs.step(action)
        assert time_step.prev_action["move"].velocity.tolist() == [[0, 2], [1, 3]]
        assert time_step.env_info["deep"]["sums"].tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.tensor([1, 2, 3]), r"shape \(2,\)"),
        (torch.tensor([1]), r"shape \(2,\)"),
        (torch.tensor([0.5, 1.0]), "dtype int64"),
        ({"a": torch.tensor([1, 2])}, "got"),
        (None, "got"),
    ],
)
def test_actions_that_do_not_fit_the_spec_are_refused(action: Any, message: str) -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        envs.reset()
        with pytest.raises(InvalidActionError, match=message) as raised:
            envs.step(action)
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value, RuntimeError)
        assert envs.step(torch.tensor([5, 6])).observation[:, 2].tolist() == [1, 1]  # nothing was sent


@pytest.mark.parametrize(
    "action",
    [
        {"move": Move(torch.zeros(2, 2), torch.zeros(2).long())},
        {"move": (torch.zeros(2, 2),), "bits": [torch.zeros(2, 2)]},
        {"move": Move(torch.zeros(2, 2), torch.zeros(2).long()), "bits": [torch.zeros(2, 2)] * 2},
        torch.zeros(2, 2),
    ],
)
def test_nested_actions_of_another_structure_are_refused(action: Any) -> None:
    with FastParallelEnvironment([NestedAlfEnv] * 2) as envs:
        envs.reset()
        with pytest.raises(InvalidActionError, match="^expected actions of "):
            envs.step(action)


def test_batched_envs_take_one_action_for_each_row() -> None:
    with FastParallelEnvironment(batched_of(CountingAlfEnv, 2, 2)) as envs:
        envs.reset()
        assert envs.step(torch.tensor([1, 2, 3, 4])).reward.tolist() == [1, 2, 3, 4]
        for wrong in (torch.tensor([1, 2]), torch.tensor([1, 2, 3, 4, 5])):
            with pytest.raises(InvalidActionError):
                envs.step(wrong)


# -- calls -----------------------------------------------------------------------------------------------


def test_there_is_one_seed_for_each_env_and_spare() -> None:
    constructors = counting(4)
    with FastParallelEnvironment(constructors, num_spare_envs_for_reload=1) as envs:
        assert envs.seed([10, 11, 12, 13]) == [10, 11, 12, 13]
        assert [env.last_seed for env in envs.envs] == [10, 11, 12]
        for seeds in ([1, 2, 3], [1, 2, 3, 4, 5]):
            with pytest.raises(ValueError, match="^Number of seeds should match the number of parallel_envs"):
                envs.seed(seeds)


def test_a_spare_that_replaces_an_env_has_its_own_seed() -> None:
    with FastParallelEnvironment(counting(3, length=1), num_spare_envs_for_reload=1) as envs:
        envs.seed([10, 11, 12])
        envs.reset()
        envs.step(torch.tensor([1, 1]))
        assert envs.step(torch.tensor([1, 1])).observation[:, 0].tolist() == [2, 0]
        assert [env.last_seed for env in envs.envs] == [12, 10]
        assert envs.seed([20, 21, 22]) == [20, 21, 22]
        assert [env.last_seed for env in envs.envs] == [22, 20]


def test_call_envs_with_same_args() -> None:
    with FastParallelEnvironment(counting(3), num_workers=2) as envs:
        assert envs.call_envs_with_same_args("poke", 1, b=2) == [(i, (1,), {"b": 2}) for i in range(3)]


def test_call_returns_a_promise() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        promises = [env.call("poke", i) for i, env in enumerate(envs.envs)]
        assert promises[1]() == (1, (1,), {})
        assert [promise() for promise in promises] == [(0, (0,), {}), (1, (1,), {})]


def test_attributes_are_the_envs_own() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        assert envs.envs[1].tag == 1
        assert envs.metadata == CountingAlfEnv.metadata
        assert not hasattr(envs.envs[0], "no_such_thing")
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = envs.envs[0].no_such_thing
        assert envs.reset().is_first().all()


def test_single_envs_can_be_stepped_and_reset() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        envs.reset()
        time_step = envs.envs[1].step(np.int64(5))
        assert (time_step.reward, type(time_step)) == (5, TimeStep)
        assert envs.envs[1].reset(blocking=False)().observation.tolist() == [1, 2, 0, -1]
        assert envs.step(torch.tensor([1, 1])).observation[:, 1].tolist() == [1, 2]


def test_render() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        assert envs.render() == ("rgb_array", 0)
        assert envs.render(mode="human") == envs.envs[0].render() == ("human", 0)
        assert envs.envs[1].render("rgb_array") == ("rgb_array", 1)


@pytest.mark.parametrize("num_workers", [None, 1])
def test_sync_progress_updates_all_envs(num_workers: int | None) -> None:
    before = dict(get_all_progresses())
    try:
        with FastParallelEnvironment(counting(2), num_workers=num_workers) as envs:
            update_progress("global_counter", 7)
            assert envs.call_envs_with_same_args("progress") == [0, 0]
            envs.sync_progress()
            assert envs.call_envs_with_same_args("progress") == [7, 7]
            update_progress("global_counter", 8)
            envs.envs[0].sync_progress()
            assert envs.envs[0].progress() == 8 if num_workers is None else True
    finally:
        update_all_progresses(before)


def test_progress_reaches_spares() -> None:
    before = dict(get_all_progresses())
    try:
        with FastParallelEnvironment(counting(3, length=1), num_spare_envs_for_reload=1) as envs:
            envs.reset()
            update_progress("global_counter", 7)
            envs.sync_progress()
            for _ in range(2):
                envs.step(torch.tensor([1, 1]))
            assert envs.envs[0].tag == 2
            assert envs.call_envs_with_same_args("progress") == [7, 7]
    finally:
        update_all_progresses(before)


# -- closing ---------------------------------------------------------------------------------------------


def test_close_closes_envs_and_spares_once(tmp_path: Path) -> None:
    def note(env: CountingAlfEnv) -> None:
        (tmp_path / str(env.tag)).mkdir()

    envs = FastParallelEnvironment(counting(3, close=note), num_spare_envs_for_reload=1)
    envs.close()
    envs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    for use in (envs.reset, lambda: envs.seed([1, 2, 3]), envs.render, envs.sync_progress):
        with pytest.raises(ClosedError, match="^the environment is closed; make a new one$"):
            use()
    assert isinstance(ClosedError(), RuntimeError)


def test_an_exception_in_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no farewell")

    envs = FastParallelEnvironment(hooked(2, close=fail))
    with caplog.at_level(logging.ERROR, "remuda"):
        envs.close()
    assert "no farewell" in caplog.text


def test_a_manager_that_is_garbage_collected_ends_its_processes() -> None:
    envs = FastParallelEnvironment(counting(2))
    processes = envs.processes
    envs.reset()
    del envs
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_the_start_method_of_other_libraries_is_left_alone() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    FastParallelEnvironment(counting(1)).close()
    assert multiprocessing.get_start_method(allow_none=True) == before


def test_batched_alf_env_stacks_the_rows_of_its_envs() -> None:
    env = BatchedAlfEnv([CountingAlfEnv(i) for i in range(2)])
    assert env.reset().observation.shape == (2, 4)
    assert alf.nest.flatten(env.action_spec())[0].shape == ()
