"""Calls, attributes, options and actions of the ALF face, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from alf.data_structures import StepType, TimeStep
from alf.environments.alf_environment import AlfEnvironment
from alf.tensor_specs import BoundedTensorSpec, TensorSpec
from alf.utils.schedulers import get_all_progresses, update_all_progresses, update_progress
from alf_face_envs import CountingAlfEnv, Move, NestedAlfEnv, batched_of, counting, hooked
from pairs import each

from remuda.alf import ClosedError, EnvError, FastParallelEnvironment, InvalidActionError, ParallelAlfEnvironment

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

KINDS: list[Any] = [FastParallelEnvironment, ParallelAlfEnvironment]


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
        assert (envs.num_spare_envs_for_reload, len(envs._envs)) == (1, 2)  # ALF's tests use `_envs`
        assert envs.current_time_step() is None
        with pytest.raises(NotImplementedError):
            envs.get_info()


@pytest.mark.parametrize(
    ("kind", "given", "passed"),
    [
        (FastParallelEnvironment, {}, {"starts_serially": True, "threads_per_worker": 1, "start_method": "fork"}),
        (ParallelAlfEnvironment, {"start_serially": False}, {"starts_serially": False, "start_timeout": None}),
        (ParallelAlfEnvironment, {"blocking": True}, {"max_concurrency": 1}),
    ],
)
def test_arguments_of_alf_become_options_of_the_pool(kind: Any, given: Any, passed: dict[str, Any]) -> None:
    with kind(counting(2), **given) as envs:
        assert {name: envs._pool.options[name] for name in passed} == passed


@pytest.mark.parametrize("backend", ["process", "serial"])
def test_only_processes_of_their_own_get_the_threads_of_pytorch(backend: Any) -> None:
    before = torch.get_num_threads()
    with FastParallelEnvironment(counting(2), backend=backend, torch_num_threads_per_env=before + 1) as envs:
        expected = before + 1 if backend == "process" else before
        assert envs.call_envs_with_same_args("torch_threads") == [expected] * 2
        if backend == "process":
            assert [process.pid for process in envs.processes] == envs.call_envs_with_same_args("pid")


@pytest.mark.parametrize("constructors", [[NestedAlfEnv] * 2, batched_of(NestedAlfEnv, 2, 2)], ids=["nests", "batched"])
def test_num_workers_auto_measures_and_chooses_a_number(constructors: Any) -> None:
    with FastParallelEnvironment(constructors, num_workers="auto") as envs:
        assert 1 <= len(envs.processes) <= 2
        assert envs.reset().is_first().all()


# -- envs with other specs ------------------------------------------------------------------------------


# Attributes and methods of an env, and ALF's words for them.
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "bounds of actions": ({"action_spec": lambda _: BoundedTensorSpec((), torch.int64, 0, 5)}, "action spec"),
    "structure of actions": ({"action_spec": lambda _: [BoundedTensorSpec((), torch.int64, 0, 999)]}, "action spec"),
    "dtype of observations": ({"observation_spec": lambda _: TensorSpec((4,), torch.int32)}, "time_step_spec"),
    "bounds of observations": (
        {"observation_spec": lambda _: BoundedTensorSpec((4,), torch.int64, -1, 99)},
        "time_step_spec",
    ),
    "shape of infos": ({"env_info_spec": lambda _: {"steps": TensorSpec((1,))}}, "env_info_spec"),
    "no infos": ({"env_info_spec": lambda _: {}}, "env_info_spec"),
    "batch size": ({"batch_size": 2}, "batch_size"),
    "batched": ({"batched": True, "batch_size": 1}, "batched"),
}


@pytest.mark.parametrize(("odd", "words"), ODD.values(), ids=ODD)
def test_envs_with_different_specs_are_refused(odd: dict[str, Any], words: str) -> None:
    odd_env = type("OddEnv", (CountingAlfEnv,), odd)
    with pytest.raises(ValueError, match=f"^All environments must have the same {words}"):
        FastParallelEnvironment([*counting(2), odd_env], start_serially=False)


class TensorAlfEnv(CountingAlfEnv):
    is_tensor_based = True


@pytest.mark.parametrize(
    ("kind", "constructors", "options", "error", "message"),
    [
        (KINDS[0], batched_of(CountingAlfEnv, 2, 2), {"num_spare_envs_for_reload": 1}, RuntimeError, "batched, got 1"),
        (KINDS[0], counting(2), {"num_spare_envs_for_reload": 2}, ValueError, "num_spare_envs_for_reload"),
        (KINDS[1], counting(2), {"num_spare_envs_for_reload": 1, "blocking": True}, AssertionError, "non-blocking"),
        (KINDS[1], counting(2), {"max_concurrency": 1, "blocking": True}, ValueError, "max_concurrency=None"),
        (KINDS[0], [CountingAlfEnv, TensorAlfEnv], {}, ValueError, "^All environments must be array-based"),
        (KINDS[0], "suite", {}, TypeError, r"^expected env_constructors .* got 'suite'; write \[make_env\] \* 8"),
        (KINDS[1], [], {}, ValueError, "at least one env"),
    ],
)
def test_wrong_arguments_are_refused(
    kind: Any, constructors: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(constructors, **options)


@each(
    changes__message=[
        ({"observation": np.zeros(5, np.int64)}, r"shape \(4,\) at time_step.observation, got one of shape \(5,\)"),
        ({"env_info": {"step": 1}}, r"a dict with the keys \['steps'\] at time_step.env_info, as the spec says"),
        ({"env_info": ()}, r"a dict with the keys \['steps'\] at time_step.env_info, as the spec says, got \(\)"),
        ({"untransformed": np.zeros(1)}, r"0 values at time_step.untransformed"),
        ({"observation": np.full(4, 0.5)}, r"shape \(4,\) and dtype int64 at obs\[3\], got .* float64"),
    ],
    phase=["reset", "step"],
)
def test_a_time_step_that_does_not_fit_its_spec_is_an_env_error(
    phase: str, changes: dict[str, Any], message: str
) -> None:
    spoil = lambda env: env._time_step(StepType.MID)._replace(**changes)  # noqa: E731
    with FastParallelEnvironment(hooked(2, **{phase: spoil})) as envs, pytest.raises(EnvError, match=message):
        envs.reset()
        envs.step(torch.tensor([1, 1]))


# -- actions ---------------------------------------------------------------------------------------------


def test_arrays_lists_and_other_dtypes_are_accepted_as_actions() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        envs.reset()
        for action in (np.array([3, 4]), [3, 4], torch.tensor([3.0, 4.0]), torch.tensor([3, 4]).int()):
            assert envs.step(action).reward.tolist() == [3, 4]


def test_transposed_tensors_and_tensors_with_gradients_are_accepted_as_actions() -> None:
    with FastParallelEnvironment([NestedAlfEnv] * 2) as envs:
        envs.reset()
        velocity = torch.arange(4.0).reshape(2, 2).T.requires_grad_()
        action = {"move": Move(velocity, torch.tensor([1, 2])), "bits": [torch.ones(2, 2)]}
        time_step = envs.step(action)
        assert time_step.prev_action["move"].velocity.tolist() == [[0, 2], [1, 3]]
        assert time_step.env_info["deep"]["sums"].tolist() == [[1, 3], [2, 4]]


MOVE = Move(torch.zeros(2, 2), torch.zeros(2).long())


@pytest.mark.parametrize(
    ("constructors", "wrong", "message"),
    [
        (counting(2), [torch.tensor([1, 2, 3]), torch.tensor([1])], r"shape \(2,\)"),
        (counting(2), [torch.tensor([0.5, 1.0])], "dtype int64"),
        (counting(2), [{"a": torch.tensor([1, 2])}, None], "got"),
        (batched_of(CountingAlfEnv, 2, 1), [torch.tensor([1]), torch.tensor([1] * 3)], "actions"),
        (
            [NestedAlfEnv] * 2,
            [
                {"move": MOVE},
                {"move": (torch.zeros(2, 2),), "bits": [torch.zeros(2, 2)]},
                {"move": MOVE, "bits": [torch.zeros(2, 2)] * 2},
                torch.zeros(2, 2),
            ],
            "^expected actions of ",
        ),
    ],
)
def test_actions_that_do_not_fit_the_spec_are_refused(constructors: Any, wrong: list[Any], message: str) -> None:
    with FastParallelEnvironment(constructors) as envs:
        envs.reset()
        for action in wrong:
            with pytest.raises(InvalidActionError, match=message):
                envs.step(action)
            assert envs._pool.pending == 0  # nothing was sent


# -- calls -----------------------------------------------------------------------------------------------


def test_each_env_and_spare_has_its_own_seed() -> None:
    with FastParallelEnvironment(counting(3, length=1), num_spare_envs_for_reload=1) as envs:
        assert envs.seed([10, 11, 12]) == [10, 11, 12]
        for seeds in ([1, 2], [1, 2, 3, 4]):
            with pytest.raises(ValueError, match="^Number of seeds should match the number of parallel_envs"):
                envs.seed(seeds)
        assert [env.last_seed for env in envs.envs] == [10, 11]
        envs.reset()
        envs.step(torch.tensor([1, 1]))
        assert envs.step(torch.tensor([1, 1])).observation[:, 0].tolist() == [2, 0]
        assert [env.last_seed for env in envs.envs] == [12, 10]
        assert envs.seed([20, 21, 22]) == [20, 21, 22]
        assert [env.last_seed for env in envs.envs] == [22, 20]


def test_calls_and_attributes_reach_the_envs() -> None:
    with FastParallelEnvironment(counting(2), num_workers=1) as envs:
        assert envs.call_envs_with_same_args("poke", 1, b=2) == [(i, (1,), {"b": 2}) for i in range(2)]
        promises = [env.call("poke", i) for i, env in enumerate(envs.envs)]
        assert promises[1]() == (1, (1,), {})
        assert [promise() for promise in promises] == [(0, (0,), {}), (1, (1,), {})]
        assert envs.envs[1].tag == 1
        assert envs.metadata == CountingAlfEnv.metadata
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = envs.envs[0].no_such_thing
        assert envs.render() == ("rgb_array", 0)
        assert envs.render(mode="human") == envs.envs[0].render() == ("human", 0)
        assert envs.envs[1].render("rgb_array") == ("rgb_array", 1)


def test_single_envs_can_be_stepped_and_reset() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        envs.reset()
        time_step = envs.envs[1].step(np.int64(5))
        assert (time_step.reward, type(time_step)) == (5, TimeStep)
        assert envs.envs[1].reset(blocking=False)().observation.tolist() == [1, 2, 0, -1]
        assert envs.step(torch.tensor([1, 1])).observation[:, 1].tolist() == [1, 2]


def test_progress_reaches_all_envs_and_spares() -> None:
    before = dict(get_all_progresses())
    try:
        with FastParallelEnvironment(counting(3, length=1), num_spare_envs_for_reload=1) as envs:
            envs.reset()
            update_progress("global_counter", 7)
            assert envs.call_envs_with_same_args("progress") == [0, 0]
            envs.sync_progress()
            assert envs.call_envs_with_same_args("progress") == [7, 7]
            for _ in range(2):
                envs.step(torch.tensor([1, 1]))
            assert envs.envs[0].tag == 2
            assert envs.call_envs_with_same_args("progress") == [7, 7]
            update_progress("global_counter", 8)
            envs.envs[0].sync_progress()
            assert envs.call_envs_with_same_args("progress") == [8, 7]
    finally:
        update_all_progresses(before)


# -- closing ---------------------------------------------------------------------------------------------


def test_close_closes_envs_and_spares_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def note(env: CountingAlfEnv) -> None:
        (tmp_path / str(env.tag)).mkdir()
        raise ValueError("no farewell")

    envs = FastParallelEnvironment(counting(3, close=note), num_spare_envs_for_reload=1)
    envs.close()
    envs.close()
    assert "no farewell" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    for use in (envs.reset, lambda: envs.seed([1, 2, 3]), envs.render, envs.sync_progress):
        with pytest.raises(ClosedError, match="^the environment is closed; make a new one$"):
            use()
