"""``ProcessEnvironment``: one env in its own process, used through calls."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
from alf.data_structures import TimeStep
from alf.utils.schedulers import get_all_progresses, update_all_progresses, update_progress
from alf_face_envs import CountingAlfEnv, Move, NestedAlfEnv, assert_same_time_step
from pool_envs import Gate
from programs import Watched

from remuda import StateError
from remuda.alf import ClosedError, EnvError, ProcessEnvironment, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def started(constructor: Any = CountingAlfEnv, **options: Any) -> ProcessEnvironment:
    env = ProcessEnvironment(constructor, **{"env_id": 3, **options})
    env.start()
    return env


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_steps_and_resets_are_the_envs_own(start_method: Any) -> None:
    env = started(start_method=start_method)
    assert env.call("pid")() != os.getpid()
    first = env.reset()
    assert type(first) is TimeStep
    assert first.observation.tolist() == [3, 1, 0, -1]
    assert env.step(np.int64(5)).observation.tolist() == [3, 1, 1, 5]
    promises = [env.step(np.int64(action), blocking=False) for action in (6, 7)]
    assert [promise().observation[2:].tolist() for promise in promises] == [[2, 6], [3, 7]]
    assert promises[0]().observation[2:].tolist() == [2, 6]  # again
    assert env.reset(blocking=False)().observation.tolist() == [3, 2, 0, -1]
    env.close()


def test_nested_time_steps_travel_as_they_are() -> None:
    env, here = started(NestedAlfEnv), NestedAlfEnv(3)
    action = {"move": Move(np.ones(2, np.float32), np.int64(2)), "bits": [np.ones(2, np.float32)]}
    to_tensors = functools.partial(alf.nest.map_structure, alf_tensor)
    assert_same_time_step(to_tensors(env.reset()), to_tensors(here.reset()))
    for _ in range(20):
        assert_same_time_step(to_tensors(env.step(action)), to_tensors(here.step(action)))
    env.close()


def alf_tensor(leaf: Any) -> Any:
    import torch

    return torch.as_tensor(leaf)


def test_flattened_time_steps_are_the_flattened_time_steps_of_the_env() -> None:
    env, here = started(NestedAlfEnv, flatten=True), NestedAlfEnv(3)
    assert [np.shape(leaf) for leaf in env.reset()] == [np.shape(leaf) for leaf in alf.nest.flatten(here.reset())]
    action = {"move": Move(np.ones(2, np.float32), np.int64(2)), "bits": [np.ones(2, np.float32)]}
    flat, expected = env.step(alf.nest.flatten(action)), alf.nest.flatten(here.step(action))
    for one, other in zip(flat, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    env.close()


def test_specs_and_attributes_are_those_of_the_env() -> None:
    env, here = started(NestedAlfEnv), NestedAlfEnv(3)
    for spec in ("observation_spec", "action_spec", "reward_spec", "time_step_spec", "env_info_spec"):
        assert getattr(env, spec)() == getattr(here, spec)()
        assert getattr(env, spec)() is getattr(env, spec)()
    assert (env.num_tasks, env.batch_size, env.batched, env.env_id) == (2, 1, False, 3)
    assert not hasattr(env, "no_such_thing")
    env.close()


def test_calls_attributes_and_pictures_come_from_the_env() -> None:
    env = started()
    assert env.call("poke", 1, b=2)() == (3, (1,), {"b": 2})
    assert env.render() == ("human", 3)
    assert env.metadata == CountingAlfEnv.metadata
    env.close()


def test_sync_progress_updates_the_progress_in_the_process() -> None:
    before = dict(get_all_progresses())
    env = started()
    try:
        update_progress("global_counter", 7)
        assert env.call("progress")() == 0
        env.sync_progress()
        assert env.call("progress")() == 7
    finally:
        update_all_progresses(before)
        env.close()


def test_envs_can_be_built_in_parallel(tmp_path: Path) -> None:
    """The first env's build waits until the second env's build has begun."""
    gate = Gate(tmp_path)
    builds = [lambda _: gate.wait(), lambda _: gate.let_pass()]
    envs = [ProcessEnvironment(functools.partial(CountingAlfEnv, build=build), env_id=0) for build in builds]
    for env in envs:
        env.start(wait_to_start=False)
    for env in envs:
        env.wait_start()
        assert env.reset().is_first()
        env.close()


def test_an_env_is_usable_only_between_start_and_close() -> None:
    env = ProcessEnvironment(CountingAlfEnv, env_id=0)
    for use in (env.reset, lambda: env.tag, env.wait_start):
        with pytest.raises(StateError, match=r"expected start\(\)"):
            use()
    env.close()  # nothing to close
    env.start()
    with pytest.raises(StateError, match="started once"):
        env.start()
    promise = env.call("poke")
    env.close()
    env.close()
    with pytest.raises(ClosedError, match="^the environment is closed"):
        env.reset()
    assert promise() == (0, (), {})  # close waits for the answer to a call in flight


def fail(*_: Any) -> None:
    raise ValueError("broken")


def test_an_exception_in_the_constructor_is_raised_by_start() -> None:
    env = ProcessEnvironment(functools.partial(CountingAlfEnv, build=fail), env_id=0)
    with pytest.raises(EnvError, match="raised ValueError in build: broken") as raised:
        env.start()
    assert isinstance(raised.value.__cause__, ValueError)
    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize("phase", ["reset", "step", "call", "render"])
def test_an_exception_in_a_call_is_raised_and_the_env_lives_on(phase: str) -> None:
    env = started(functools.partial(CountingAlfEnv, **{phase: fail}))
    calls = {"reset": ("reset",), "step": ("step", np.int64(1)), "call": ("poke",), "render": ("render",)}
    if phase == "step":
        env.reset()
    operation = {"render": "call"}.get(phase, phase)
    with pytest.raises(EnvError, match=f"raised ValueError in {operation}: broken") as raised:
        env.call(*calls[phase])()
    where = raised.value.failures[0].where
    assert (where.episode, where.step) == {"reset": (0, 0), "step": (0, 1)}.get(phase, (None, 0))
    assert env.tag == 3  # the env is still usable
    env.close()


def test_a_killed_process_is_reported_by_the_next_call() -> None:
    env = started()
    pid = env.call("pid")()
    watched = Watched([pid])
    os.kill(pid, signal.SIGKILL)
    watched.await_end()
    with pytest.raises(WorkerDiedError, match="killed by SIGKILL"):
        env.step(np.int64(1))
    env.close()


def test_a_process_killed_in_a_step_is_reported_by_the_promise(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = started(functools.partial(CountingAlfEnv, step=lambda _: gate.wait()))
    pid = env.call("pid")()
    env.reset()
    promise = env.step(np.int64(1), blocking=False)
    gate.await_arrival()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="died while in step .*episode 0, step 1, .*killed by SIGKILL"):
        promise()
    env.close()


def kill_in_the_third_episode(env: Any) -> None:
    if env.episodes == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_death_is_reported_for_the_first_unanswered_call() -> None:
    """The first unanswered call is named although later ones are in flight, and although a step has reset the env."""
    env = started(functools.partial(CountingAlfEnv, length=1, render=kill_in_the_third_episode))
    env.reset()
    env.step(np.int64(1))  # ends the episode
    env.step(np.int64(1))  # resets the env
    promises = [env.call("reset"), env.call("render"), env.call("step", np.int64(1))]
    assert promises[0]() is not None
    for promise in promises[1:]:
        with pytest.raises(WorkerDiedError, match=r"died while in call .*episode 2, step 0, ") as raised:
            promise()
    assert raised.value.operation == "call"
    env.close()


def kill(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("phase", ["build", "reset"])
def test_a_death_before_the_first_step_names_the_phase(phase: str) -> None:
    with pytest.raises(WorkerDiedError, match=f"died while in {phase} ") as raised:
        started(functools.partial(CountingAlfEnv, **{phase: kill})).reset()
    assert raised.value.where.episode == (0 if phase == "reset" else None)
