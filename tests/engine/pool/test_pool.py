"""The properties of a pool: what describes its envs, its `repr`, batched spaces, and times in `stats()`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space
from pool_envs import CountingEnv, DrawingEnv, NestedEnv, begun, counting, hooked

from remuda import EnvError, Part, Pool


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
        with Pool([build], backend=backend, num_workers=None) as pool:
            assert pool.spec is None
            assert pool.reset().obs.shape == (1, 4)


def test_a_space_that_cannot_be_pickled_is_an_error() -> None:
    class Stuck(spaces.Box):
        def __reduce__(self) -> Any:
            raise TypeError("this space stays here")

    def build(env: Any) -> None:
        env.observation_space = Stuck(0, 1)

    message = "in build: expected spaces .* that can be pickled, got .*this space stays here"
    with pytest.raises(EnvError, match=message):
        Pool(hooked(2, build=build), num_workers=1, start_method="fork")


# -- batched spaces --------------------------------------------------------------------------------------


def check(envs: Part, n: int) -> None:
    """Asserts that actions and observations of several steps are elements of the batched spaces."""
    assert envs.observation_space == batch_space(envs.single_observation_space, n)
    assert envs.action_space == batch_space(envs.single_action_space, n)
    assert envs.reset(seed=1).obs in envs.observation_space
    for _ in range(3):
        assert envs.step(envs.action_space.sample()).obs in envs.observation_space


@pytest.mark.parametrize("env", [CountingEnv, NestedEnv])
def test_batches_and_actions_are_elements_of_the_batched_spaces(env: Any) -> None:
    with Pool([env] * 5, backend="serial", num_workers=2) as pool:
        check(pool, 5)
        for part in pool.split(2):
            assert part.single_action_space == pool.single_action_space
            check(part, part.num_envs)


def test_batched_spaces_count_the_envs_of_vector_envs() -> None:
    fns = [lambda: gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")] * 2
    with Pool(fns, vector_size=3, backend="serial") as pool:
        assert len(pool.observation_spaces) == pool.num_envs == 6
        check(pool, 6)


@pytest.mark.parametrize("seeding", ["gymnasium", "per_episode"])
def test_a_batched_space_is_the_same_object_each_time_and_keeps_its_seed(seeding: Any) -> None:
    samples = []
    with Pool(counting(3), backend="serial", seeding=seeding) as pool:
        for _ in range(2):
            pool.action_space.seed(7)
            pool.reset(seed=3)
            samples.append(pool.action_space.sample().tolist())
        assert pool.observation_space is pool.observation_space
    assert samples[0] == samples[1]
    # the spaces of a closed pool remain available
    assert pool.action_space.shape == pool.observation_space.shape[:1] == (3,)


# -- CPU time and wall time in stats() -------------------------------------------------------------------

SECONDS = 0.1  # CPU time or sleep of each step


class SlowEnv(CountingEnv):
    """An env that spends time in its steps by a function: it burns CPU time, or sleeps."""

    def __init__(self, spend: Callable[[float], None]) -> None:
        super().__init__()
        self.spend = spend

    def step(self, action: Any) -> Any:
        self.spend(SECONDS)
        return super().step(action)


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere CPU time is not measured")
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_cpu_time_excludes_sleep_and_the_callers_time(backend: Any) -> None:
    with begun([partial(SlowEnv, burn), partial(SlowEnv, time.sleep)], num_workers=2, backend=backend) as pool:
        for _ in range(5):
            pool.step([0, 0])
            burn(2 * SECONDS)
        stats = pool.stats()
    assert stats.env_seconds >= 10 * SECONDS
    assert 4 * SECONDS <= stats.cpu_seconds < 10 * SECONDS  # the time for which workers spin is an estimate
