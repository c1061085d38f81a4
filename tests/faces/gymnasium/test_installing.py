"""Programs that name Gymnasium's class, or make envs that were registered with a vector entry point, use remuda."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import async_vector_env, sync_vector_env
from pool_envs import CountingEnv

from remuda.gymnasium import AsyncVectorEnv, entry_point, install, uninstall

ORIGINAL = gymnasium.vector.AsyncVectorEnv


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    uninstall()


@pytest.fixture
def lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lerobot", ModuleType("lerobot"))


def test_gymnasiums_make_vec_uses_remuda() -> None:
    install(num_workers=2, name="herd")
    with closing(gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="async")) as envs:
        assert isinstance(envs, AsyncVectorEnv) and type(envs) is gymnasium.vector.AsyncVectorEnv
        assert [worker.name for worker in envs.processes] == ["herd-0", "herd-1"]
        assert "CartPole" in str(envs)
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())


def test_arguments_of_the_program_override_the_options() -> None:
    install(context="spawn", shared_memory=False, num_workers=1)
    fns = [CountingEnv] * 2
    with closing(async_vector_env.AsyncVectorEnv(fns, True, True, "forkserver", num_workers=2)) as envs:
        assert (envs.shared_memory, envs.context, len(envs.processes)) == (True, "forkserver", 2)
    with closing(async_vector_env.AsyncVectorEnv(fns)) as envs:
        assert (envs.shared_memory, envs.context, len(envs.processes)) == (False, "spawn", 1)


def test_the_last_install_counts_and_uninstall_brings_the_class_back() -> None:
    install(num_workers=3)
    with closing(gymnasium.vector.AsyncVectorEnv([CountingEnv])) as envs:
        assert len(envs.processes) == 1  # there may be fewer envs than workers
    install(num_workers=2)
    with closing(gymnasium.vector.AsyncVectorEnv([CountingEnv] * 2)) as envs:
        assert len(envs.processes) == 2
        uninstall()
        uninstall()
        assert gymnasium.vector.AsyncVectorEnv is async_vector_env.AsyncVectorEnv is ORIGINAL
        envs.reset()


def test_sync_vector_envs_are_replaced_on_request() -> None:
    theirs = gymnasium.vector.SyncVectorEnv
    install(sync=True, backend="serial")
    for make in (gymnasium.vector.SyncVectorEnv, sync_vector_env.SyncVectorEnv):
        with closing(make([CountingEnv] * 2, False, "same", "SameStep")) as envs:
            assert isinstance(envs, AsyncVectorEnv) and envs.metadata["autoreset_mode"].value == "SameStep"
            assert (envs.copy, envs.shared_memory, envs.pool.backend) == (False, False, "serial")
    with pytest.raises(TypeError, match="too many positional arguments"):
        make([CountingEnv], True, "same", "SameStep", None)
    with pytest.raises(TypeError, match="multiple values for argument 'copy'"):
        make([CountingEnv], True, copy=False)
    install(backend="serial")
    assert gymnasium.vector.SyncVectorEnv is sync_vector_env.SyncVectorEnv is theirs


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"install\(\) got an unexpected keyword argument 'num_worker'.*num_workers"):
        install(num_worker=2)  # type: ignore[call-arg]
    assert gymnasium.vector.AsyncVectorEnv is ORIGINAL


@pytest.mark.usefixtures("lerobot")
def test_lerobot_is_warned_of_restarts() -> None:
    install(num_workers=1)
    with pytest.warns(RuntimeWarning, match="counts the episode of an env that failed as a success of all envs"):
        install(num_workers=1, faults="restart")
    with pytest.warns(RuntimeWarning, match="as a success of all envs"):  # LeRobot may be imported after `install`
        gymnasium.vector.AsyncVectorEnv([CountingEnv]).close()


def test_an_entry_point_makes_registered_envs_on_remuda() -> None:
    point = entry_point(make_tagged, num_workers=2)
    gymnasium.register("Tagged-v0", make_tagged, vector_entry_point=point, kwargs={"tag": 5}, max_episode_steps=2)
    try:
        with closing(gymnasium.make_vec("Tagged-v0", num_envs=2)) as envs:
            assert isinstance(envs, AsyncVectorEnv) and len(envs.processes) == 2
            assert envs.call("tag") == (5, 5)
            envs.reset()
            envs.step([0, 0])
            assert envs.step([0, 0])[3].all()
    finally:
        del gymnasium.registry["Tagged-v0"]
    assert copy.deepcopy(point) is point
    with closing(pickle.loads(pickle.dumps(point))(num_envs=1, tag=6)) as envs:
        assert envs.call("tag") == (6,)


def make_tagged(tag: int) -> Any:
    env = CountingEnv()
    env.tag = tag
    return env
