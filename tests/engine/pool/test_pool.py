"""The properties of a pool that describe its envs, and its `repr`."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from pool_envs import CountingEnv, DrawingEnv, SampleEnv, counting

from remuda import EnvError, Pool


def test_a_pool_describes_its_envs() -> None:
    pool = Pool([DrawingEnv, *counting(2)], backend="serial", num_workers=2)
    assert pool.metadata == CountingEnv.metadata
    assert pool.metadata is not CountingEnv.metadata
    assert (pool.render_mode, pool.spec) == ("rgb_array", None)
    assert (pool.num_envs, pool.num_workers, pool.backend, pool.autoreset) == (3, 2, "serial", "next_step")
    assert pool.single_action_space == spaces.Discrete(1000)
    assert len(pool.observation_spaces) == len(pool.action_spaces) == 3
    assert repr(pool) == "<Pool of 3 envs, 2 serial workers>"
    assert repr(pool.reset()) == "<Batch of 3 envs>"
    pool.close()
    assert repr(pool) == "<Pool of 3 envs, closed>"


def test_a_spec_that_cannot_be_pickled_is_none() -> None:
    def build() -> Any:
        env = CountingEnv()
        env.spec = EnvSpec("Held-v0", entry_point="pool_envs:CountingEnv", kwargs={"held": (i for i in range(3))})
        return env

    backends: list[Any] = ["serial", "process"]
    for backend in backends:
        with Pool([build], backend=backend) as pool:
            assert pool.spec is None
            assert pool.reset().obs.shape == (1, 4)


def test_a_space_that_cannot_be_pickled_is_an_error() -> None:
    class Stuck(spaces.Box):
        def __reduce__(self) -> Any:
            raise TypeError("this space stays here")

    fns = [lambda: SampleEnv(spaces.Discrete(2), spaces.Discrete(2)), lambda: _with_space(Stuck(0, 1))]
    with pytest.raises(
        EnvError, match=r"in build: expected spaces .* that can be pickled, got .*this space stays here"
    ):
        Pool(fns, num_workers=1, start_method="fork")


def _with_space(space: spaces.Space[Any]) -> CountingEnv:
    env = CountingEnv()
    env.observation_space = space
    return env
