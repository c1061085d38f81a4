"""``ProcessEnvironment``: one env in its own process, used through calls."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
from accidents import kill_myself, raise_value_error
from alf.data_structures import TimeStep
from alf_face_envs import CountingAlfEnv, Move, NestedAlfEnv
from pool_envs import Gate, assert_same

from remuda import EnvProgress, StateError
from remuda.alf import ClosedError, EnvError, ProcessEnvironment, WorkerDiedError
from remuda.alf.process_environment import _OpenCalls

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def start() -> Iterator[Callable[..., ProcessEnvironment]]:
    """Starts envs with the id 3, and closes them at the end of the test."""
    envs: list[ProcessEnvironment] = []

    def start(constructor: Any = CountingAlfEnv, **options: Any) -> ProcessEnvironment:
        envs.append(ProcessEnvironment(constructor, **{"env_id": 3, **options}))
        envs[-1].start()
        return envs[-1]

    yield start
    for env in envs:
        env.close()


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_steps_and_resets_are_the_envs_own(start_method: Any, start: Any) -> None:
    env = start(start_method=start_method)
    assert env.call("pid")() != os.getpid()
    assert (env.env_id, env.render()) == (3, ("human", 3))
    assert env.action_spec() is env.action_spec()
    first = env.reset()
    assert type(first) is TimeStep
    assert first.observation.tolist() == [3, 1, 0, -1]
    assert env.step(np.int64(5)).observation.tolist() == [3, 1, 1, 5]
    promises = [env.step(np.int64(action), blocking=False) for action in (6, 7)]
    assert [promise().observation[2:].tolist() for promise in promises] == [[2, 6], [3, 7]]
    assert promises[0]().observation[2:].tolist() == [2, 6]  # again
    assert env.reset(blocking=False)().observation.tolist() == [3, 2, 0, -1]


ACTION = {"move": Move(np.ones(2, np.float32), np.int64(2)), "bits": [np.ones(2, np.float32)]}


@pytest.mark.parametrize("flatten", [False, True])
def test_nested_time_steps_travel_as_they_are_or_flattened(flatten: bool, start: Any) -> None:
    env, here = start(NestedAlfEnv, flatten=flatten), NestedAlfEnv(3)
    form = alf.nest.flatten if flatten else copy.copy
    assert_same(env.reset(), form(here.reset()))
    for _ in range(20):
        assert_same(env.step(form(ACTION)), form(here.step(ACTION)))


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


def test_the_error_for_a_misspelt_keyword_suggests_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"^ProcessEnvironment\(\) got .* 'start_methd'; did you mean start_method=\?"):
        ProcessEnvironment(CountingAlfEnv, start_methd="fork")  # type: ignore[call-arg]


# -- faults ----------------------------------------------------------------------------------------------


def test_an_exception_in_the_constructor_is_raised_by_start(start: Any) -> None:
    with pytest.raises(EnvError, match="raised ValueError in build: broken") as raised:
        start(functools.partial(CountingAlfEnv, build=raise_value_error))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("phase", ["reset", "step", "call", "render"])
def test_an_exception_in_a_call_is_raised_and_the_env_lives_on(phase: str, start: Any) -> None:
    env = start(functools.partial(CountingAlfEnv, **{phase: raise_value_error}))
    calls = {"reset": ("reset",), "step": ("step", np.int64(1)), "call": ("poke",), "render": ("render",)}
    if phase == "step":
        env.reset()
    operation = {"render": "call"}.get(phase, phase)
    with pytest.raises(EnvError, match=f"raised ValueError in {operation}: broken") as raised:
        env.call(*calls[phase])()
    where = raised.value.failures[0].where
    assert (where.episode, where.step) == {"reset": (0, 0), "step": (0, 1)}.get(phase, (None, 0))
    assert env.tag == 3  # the env is still usable


class _Answered:
    """A call that is answered. Reading this has the program send another one, which drops the answered calls."""

    def __init__(self, read: Callable[[], object] = lambda: None) -> None:
        self._read = read

    @property
    def done(self) -> bool:
        read, self._read = self._read, lambda: None
        read()
        return True


def test_calls_may_be_sent_while_a_fault_is_reported() -> None:
    """A thread of the pool reports faults, while the program sends calls."""
    calls, where = _OpenCalls(), EnvProgress(0, None, 0, seed=None, resets_since_seed=0)
    send: Any = calls.send
    send("reset", lambda: _Answered(lambda: send("render", _Answered)))
    assert calls.rename_operation("call", where) == ("call", where)


def test_a_death_is_reported_for_the_first_unanswered_call(start: Any) -> None:
    """The first unanswered call is named although later ones are in flight, and although a step has reset the env."""
    env = start(
        functools.partial(CountingAlfEnv, length=1, render=lambda env: kill_myself() if env.episodes == 3 else None)
    )
    env.reset()
    env.step(np.int64(1))  # ends the episode
    env.step(np.int64(1))  # resets the env
    promises = [env.call("reset"), env.call("render"), env.call("step", np.int64(1))]
    assert promises[0]() is not None
    for promise in promises[1:]:
        with pytest.raises(WorkerDiedError, match=r"died while in call .*episode 2, step 0, ") as raised:
            promise()
    assert raised.value.operation == "call"
