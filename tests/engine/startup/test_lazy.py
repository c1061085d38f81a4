"""`lazy=True`: envs are built at their first use."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import kill_myself
from failing import MODES, fault_in
from gymnasium import spaces
from pairs import each
from pool_envs import CountingEnv, Diary, HookedEnv, SampleEnv
from programs import kill
from vector_envs import PlainVector

from remuda import EnvError, FaultPolicy, Pool, RestartLimitError, WorkerDiedError, worker_info

WIDE = spaces.Box(-1, 1, (5,), np.int64)


class Builds(Diary):
    """A file to which all processes append the builds and closes of envs."""

    def env_fns(self, n: int, **arguments: Any) -> list[Callable[[], Any]]:
        return [partial(self.build, tag, **arguments) for tag in range(n)]

    def build(self, tag: int, **arguments: Any) -> HookedEnv:
        self.note(f"+{tag}")
        return HookedEnv(tag, close=lambda env: self.note(f"-{tag}"), **arguments)


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path / "builds")


@pytest.mark.parametrize(("backend", "num_workers"), [("process", 3), ("process", 1), ("thread", 2), ("serial", 1)])
def test_an_env_is_built_by_its_first_reset(backend: Any, num_workers: int, builds: Builds) -> None:
    with Pool(builds.env_fns(3), backend=backend, num_workers=num_workers, lazy=True) as pool:
        assert builds.lines() == ["+0"]
        assert len(pool.observation_spaces) == len(pool.action_spaces) == 3
        assert pool.reset(env_ids=[2], seed=[7]).obs.tolist() == [[2, 1, 0, -1]]
        assert builds.lines() == ["+0", "+2"]
        assert pool.get_attr("last_seed", env_ids=[2]) == [7]
        pool.step([1], env_ids=[2])
        assert pool.reset().obs[:, :2].tolist() == [[0, 1], [1, 1], [2, 2]]
        assert sorted(builds.lines()) == ["+0", "+1", "+2"]
        assert pool.step([1, 2, 3]).rewards.tolist() == [1, 2, 3]
    assert sorted(builds.lines()) == ["+0", "+1", "+2", "-0", "-1", "-2"]


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_call_builds_an_env_and_an_unused_env_is_never_built(num_workers: int, builds: Builds) -> None:
    with Pool(builds.env_fns(4), num_workers=num_workers, lazy=True) as pool:
        assert pool.get_attr("tag", env_ids=[2]) == [2]
        assert builds.lines() == ["+0", "+2"]
        pool.set_attr("mark", 5, env_ids=[1])
        pool.reset(env_ids=[0, 1, 2])
        pool.step([1, 1], env_ids=[0, 1])
        assert pool.get_attr("mark", env_ids=[1]) == [5]
    assert sorted(builds.lines()) == ["+0", "+1", "+2", "-0", "-1", "-2"]


@pytest.mark.parametrize("mode", [*MODES, "background"])
def test_lazy_does_not_change_episodes(mode: Any, builds: Builds) -> None:
    def play(**options: Any) -> list[Any]:
        with Pool(builds.env_fns(3, length=2), num_workers=2, autoreset=mode, **options) as pool:
            seen = [pool.reset(seed=3)]
            for _ in range(6):
                batch = pool.step([1, 2, 3])
                seen.append(batch)
                if mode == "background":
                    while pool.pending:
                        seen.append(pool.recv())
                elif mode == "disabled" and batch.terminations.all():
                    seen.append(pool.reset())
            return [(one.obs.tolist(), one.rewards.tolist(), one.terminations.tolist()) for one in seen]

    assert play(lazy=True) == play()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_failed_build_is_raised_by_its_first_use_and_retried(num_workers: int, tmp_path: Path) -> None:
    door = tmp_path / "door"

    def build(tag: int) -> CountingEnv:
        if tag == 1 and not door.exists():
            raise ValueError("no licence")
        return CountingEnv(tag)

    env_fns = [partial(build, tag) for tag in range(3)]
    with Pool(env_fns, num_workers=num_workers, lazy=True) as pool:
        pool.reset(env_ids=[0, 2])
        for _ in range(2):
            with pytest.raises(EnvError, match=r"env 1 \(worker \d\) raised ValueError in build: no licence"):
                pool.reset(env_ids=[1])
        with pytest.raises(EnvError, match="raised ValueError in call: no licence"):
            pool.get_attr("tag", env_ids=[1])
        assert pool.step([1, 1], env_ids=[0, 2]).obs[:, 2].tolist() == [1, 1]
        door.touch()
        assert pool.reset(env_ids=[1]).obs.tolist() == [[1, 1, 0, -1]]


@pytest.mark.parametrize(
    ("env_fn", "message"),
    [
        (
            partial(SampleEnv, spaces.Box(-1, 1, (5,), np.int64), spaces.Discrete(1000)),
            r"SpaceMismatchError in build: .* got env 1: shape \(5,\) instead of \(4,\)",
        ),
        (lambda: None, r"InvalidEnvError in build: expected env_fns\[1\] to return a gymnasium.Env, got None"),
    ],
)
def test_an_env_that_does_not_fit_is_an_error_of_its_first_reset(env_fn: Any, message: str) -> None:
    with Pool([CountingEnv, env_fn, CountingEnv], num_workers=2, lazy=True) as pool:
        with pytest.raises(EnvError, match=message):
            pool.reset()
        assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


def test_a_successor_builds_only_the_envs_that_are_used(builds: Builds) -> None:
    faults = FaultPolicy("restart", backoff=0)
    with Pool(builds.env_fns(4), num_workers=2, lazy=True, faults=faults) as pool:
        pool.set_attr("mark", 5, env_ids=[2], lasting=True)
        pool.reset(env_ids=[0, 1, 2])
        assert builds.lines() == ["+0", "+2", "+1"]
        kill(pool, 1)
        fault = fault_in(pool.step([1, 1, 1], env_ids=[0, 1, 2]), 2)
        assert fault.kind == "death"
        batch = pool.step([1, 1, 1], env_ids=[0, 1, 2])
        assert batch.obs[2].tolist() == [2, 1, 0, -1]
        assert pool.get_attr("mark", env_ids=[2]) == [5]
        assert "+3" not in builds.lines()
        assert builds.lines().count("+2") == 2
        assert pool.reset(env_ids=[3]).obs.tolist() == [[3, 1, 0, -1]]


def test_a_failed_build_is_repeated_up_to_max_restarts() -> None:
    def fails() -> Any:
        raise ValueError("no licence")

    faults = FaultPolicy("restart", backoff=0, max_restarts=2)
    with Pool([CountingEnv, fails], lazy=True, faults=faults) as pool:
        pool.reset(env_ids=[0])
        with pytest.raises(RestartLimitError, match="ValueError in build: no licence"):
            pool.reset(env_ids=[1])
        assert len(pool.step([1], env_ids=[0])) == 1


def hang() -> Any:
    signal.pause()


@pytest.mark.parametrize(
    ("build", "timeout", "text"),
    [
        (hang, 3.0, r"died while in build .* longer than start_timeout=3.0 s"),
        (kill_myself, 60.0, "died while in build"),
    ],
)
def test_a_build_that_hangs_or_dies_is_an_error_of_its_first_reset(build: Any, timeout: float, text: str) -> None:
    with Pool([CountingEnv, build], lazy=True, start_timeout=timeout) as pool:
        pool.reset(env_ids=[0])
        with pytest.raises(WorkerDiedError, match=text):
            pool.reset(env_ids=[1])


@each(mode=MODES, num_workers=[1, 2])
def test_lazy_vector_envs(mode: Any, num_workers: int, builds: Builds) -> None:
    def build(first: int) -> PlainVector:
        builds.note(f"+{first}")
        return PlainVector(2, first, mode=mode)

    env_fns = [partial(build, 0), partial(build, 2)]
    with Pool(env_fns, vector_size=2, num_workers=num_workers, autoreset=mode, lazy=True) as pool:
        assert builds.lines() == ["+0"]
        pool.reset(env_ids=[2, 3])
        assert builds.lines() == ["+0", "+2"]
        pool.reset(env_ids=[0, 1])
        assert pool.step([1] * 4).obs[:, 0].tolist() == [0, 1, 2, 3]


def test_spares_are_built_when_they_reset_in_advance(builds: Builds) -> None:
    with Pool(builds.env_fns(3, length=1), spares=1, lazy=True) as pool:
        pool.reset()
        pool.step([1, 1])
        assert len(pool.step([1, 1])) == 2
        assert sorted(builds.lines()) == ["+0", "+1", "+2"]


def test_lazy_envs_may_be_replaced_and_renewed(builds: Builds) -> None:
    with Pool(builds.env_fns(3, length=1), num_workers=1, lazy=True, faults=FaultPolicy(renew_every=1)) as pool:
        pool.replace([1], [partial(builds.build, 10, length=1)])
        assert builds.lines() == ["+0", "+10"]
        assert pool.reset().obs[:, 0].tolist() == [0, 10, 2]
        for _ in range(4):
            batch = pool.step([1, 1, 1])
        assert batch.obs[:, 0].tolist() == [0, 10, 2]
        assert builds.lines().count("+10") > 1
        assert "+1" not in builds.lines()


def test_lazy_factories_have_worker_info() -> None:
    def build() -> gymnasium.Env[Any, Any]:
        info = worker_info()
        return CountingEnv(info.index)

    for backend in ("process", "thread", "serial"):
        with Pool([build] * 2, backend=backend, num_workers=2, lazy=True) as pool:  # type: ignore[arg-type]
            assert pool.reset().obs[:, 0].tolist() == [0, 1]


def test_set_state_builds_an_env() -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * 2
    with Pool(env_fns, lazy=True) as pool:
        first = pool.reset(seed=3, env_ids=[0])
        (state,) = pool.get_state([0])
        assert np.array_equal(pool.set_state([state], [1]).obs, first.obs)
