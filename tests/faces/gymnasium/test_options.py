"""Arguments of the constructor and attributes of the Gymnasium face."""

from __future__ import annotations

import functools
import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium_face_envs import SpaceEnv
from pool_envs import assert_same, counting

from remuda.gymnasium import AsyncVectorEnv


def test_attributes_are_those_of_gymnasium() -> None:
    space = gymnasium.spaces.Discrete(2)
    fns = [functools.partial(SpaceEnv, space)] * 2
    given = {
        "shared_memory": True,
        "copy": False,
        "context": "spawn",
        "daemon": False,
        "worker": None,
        "observation_mode": "same",
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "max_concurrency": 1,
    }
    envs = AsyncVectorEnv(fns, *given.values())  # type: ignore[arg-type]  # the arguments have Gymnasium's order
    assert isinstance(envs, VectorEnv)
    assert {name: getattr(envs, name) for name in given} == given
    assert envs.env_fns is fns
    assert (envs.num_envs, envs.spec, envs.render_mode) == (2, None, "rgb_array")
    assert envs.metadata == {**SpaceEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    assert "autoreset_mode" not in SpaceEnv.metadata
    assert envs.unwrapped is envs
    assert envs.observations.tolist() == [0, 0]  # before the first reset
    assert not envs.closed
    envs.close()
    assert envs.closed


def test_each_env_has_its_own_process_named_after_the_class() -> None:
    class Mine(AsyncVectorEnv[Any, Any]):
        pass

    envs = Mine(counting(3))
    assert repr(envs) == "Mine(num_envs=3)"
    assert envs.call("pid") == tuple(process.pid for process in envs.processes)
    assert os.getpid() not in envs.call("pid")
    assert [process.name for process in envs.processes] == [f"Worker<Mine>-{i}" for i in range(3)]
    assert all(process.is_alive() and process.exitcode is None for process in envs.processes)
    envs.close()
    assert [(process.is_alive(), process.exitcode) for process in envs.processes] == [(False, 0)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": lambda *args: None}, r"gymnasium\.Wrapper.*autoreset_mode"),
        ({"observation_mode": "nonsense"}, "Invalid `observation_mode`, expected: 'same' or 'different' or tuple"),
        ({"observation_mode": None}, "Invalid `observation_mode`"),
        ({"observation_mode": (1, 2)}, "Expected both elements of observation_mode to be Spaces, got <class 'int'>"),
        ({"autoreset_mode": "next_step"}, "next_step"),
        ({"context": "nonsense"}, "expected context to be one of .*nonsense"),
    ],
)
def test_bad_arguments_are_refused_before_any_worker_starts(options: Any, message: str) -> None:
    def explode() -> gymnasium.Env[Any, Any]:
        raise AssertionError("a worker has started")

    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        AsyncVectorEnv([explode], **options)


def test_vector_envs_equal_one_large_vector_env() -> None:
    build = functools.partial(gymnasium.make_vec, "CartPole-v1", num_envs=2, vectorization_mode="sync")
    single = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    envs = AsyncVectorEnv([build] * 2, vector_size=2)
    assert (envs.num_envs, len(envs.processes)) == (4, 2)
    assert_same(envs.reset(seed=3), single.reset(seed=3))
    for actions in ([0, 1, 0, 1], [1, 1, 0, 0]):
        assert_same(envs.step(actions), single.step(np.array(actions)))
    with pytest.raises(ValueError, match="whole vector envs"):
        envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    envs.reset(seed=3, options={"reset_mask": np.array([True, True, False, False])})
    envs.close()
    single.close()
