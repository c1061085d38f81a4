"""When envs are built: `lazy=True` at their first use; `starts_serially=True` in one worker after another."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, leave, raise_value_error
from failing import MODES, fault_in
from gymnasium import spaces
from pairs import each
from pool_envs import CountingEnv, Diary, Gate, HookedEnv, SampleEnv, gated
from programs import kill
from vector_envs import PlainVector

from remuda import EnvError, FaultPolicy, Pool, RestartLimitError, StartTimeoutError, WorkerDiedError, worker_info


class Builds(Diary):
    """A file to which all processes append the builds and closes of envs."""

    def env_fns(self, n: int, **arguments: Any) -> list[Callable[[], Any]]:
        return [partial(self.build, tag, **arguments) for tag in range(n)]

    def build(self, tag: int, **arguments: Any) -> HookedEnv:
        self.note(f"+{tag}" if tag % 10 in worker_info().env_ids else "in another worker")
        return HookedEnv(tag, close=lambda env: self.note(f"-{tag}"), **arguments)


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path / "builds")


@pytest.mark.parametrize(("backend", "num_workers"), [("process", 4), ("process", 1), ("thread", 2), ("serial", 1)])
def test_an_env_is_built_by_its_first_reset_or_call_and_an_unused_env_never(
    backend: Any, num_workers: int, builds: Builds
) -> None:
    with Pool(builds.env_fns(4), backend=backend, num_workers=num_workers, lazy=True) as pool:
        assert builds.lines() == ["+0"]
        assert len(pool.observation_spaces) == len(pool.action_spaces) == 4
        assert pool.reset(env_ids=[2], seed=[7]).obs.tolist() == [[2, 1, 0, -1]]
        assert builds.lines() == ["+0", "+2"]
        assert pool.get_attr("last_seed", env_ids=[2]) == [7]
        pool.set_attr("mark", 5, env_ids=[1])
        assert builds.lines() == ["+0", "+2", "+1"]
        pool.step([1], env_ids=[2])
        assert pool.reset(env_ids=[0, 1, 2]).obs[:, :2].tolist() == [[0, 1], [1, 1], [2, 2]]
        assert pool.step([1, 2, 3], env_ids=[0, 1, 2]).rewards.tolist() == [1, 2, 3]
        assert pool.get_attr("mark", env_ids=[1]) == [5]
    assert sorted(builds.lines()) == ["+0", "+1", "+2", "-0", "-1", "-2"]


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


OTHER_SPACE = r"SpaceMismatchError in build: .* got env 1: shape \(5,\) instead of \(4,\)"
NO_ENV = r"InvalidEnvError in build: expected env_fns\[1\] to return a gymnasium.Env, got None"
HANGS = r"died while in build .* longer than start_timeout=3.0 s"


@pytest.mark.parametrize(
    ("env_fn", "start_timeout", "error", "message"),
    [
        (partial(SampleEnv, spaces.Box(-1, 1, (5,), np.int64), spaces.Discrete(1000)), None, EnvError, OTHER_SPACE),
        (lambda: None, None, EnvError, NO_ENV),
        (signal.pause, 3.0, WorkerDiedError, HANGS),
        (kill_myself, 60.0, WorkerDiedError, "died while in build"),
    ],
)
def test_a_build_that_does_not_fit_hangs_or_dies_is_an_error_of_its_first_reset(
    env_fn: Any, start_timeout: float | None, error: type[Exception], message: str
) -> None:
    with Pool([CountingEnv, env_fn, CountingEnv], num_workers=3, lazy=True, start_timeout=start_timeout) as pool:
        with pytest.raises(error, match=message):
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
    faults = FaultPolicy("restart", backoff=0, max_restarts=2)
    with Pool([CountingEnv, raise_value_error], lazy=True, faults=faults) as pool:
        pool.reset(env_ids=[0])
        with pytest.raises(RestartLimitError, match="ValueError in build: broken"):
            pool.reset(env_ids=[1])
        assert len(pool.step([1], env_ids=[0])) == 1


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


# -- one worker after another ----------------------------------------------------------------------------------


def noting(diary: Diary, num_envs: int) -> list[Any]:
    """Returns factories that write a line when they begin and end, and are busy in between."""

    def build(env: HookedEnv) -> None:
        diary.note("begin", env.tag)
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
        diary.note("end", env.tag)

    return [lambda tag=i: HookedEnv(tag, build=build) for i in range(num_envs)]


@each(start_method=["forkserver", "fork"], num_workers=[6, 3])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_start_one_after_another(num_workers: int, start_method: Any, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "notes")
    with Pool(noting(diary, 6), num_workers=num_workers, starts_serially=True, start_method=start_method) as pool:
        assert pool.reset().obs[:, 0].tolist() == list(range(6))
    assert diary.lines() == [f"{event} {i}" for i in range(6) for event in ("begin", "end")]


def test_workers_start_concurrently_by_default(tmp_path: Path) -> None:
    """Builds wait for each other in both directions, so they must overlap."""
    first, second = Gate(tmp_path, "first"), Gate(tmp_path, "second")
    builds = [lambda _: first.wait(), lambda _: first.let_pass(), lambda _: second.wait(), lambda _: second.let_pass()]
    with Pool([lambda build=build: HookedEnv(build=build) for build in builds], num_workers=None) as pool:
        pool.reset()


@pytest.mark.parametrize(
    ("ends", "error", "text"),
    [(raise_value_error, EnvError, "env 1 .*broken"), (leave, WorkerDiedError, "worker 1")],
)
def test_a_failed_build_is_the_last_one(ends: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "notes")
    first, *rest = noting(diary, 3)
    with pytest.raises(error, match=text):
        Pool([first, ends, *rest], starts_serially=True, num_workers=None)
    assert diary.lines() == ["begin 0", "end 0"]


def test_start_timeout_covers_all_builds_of_a_serial_start(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with pytest.raises(StartTimeoutError, match=r"=1 s, got no answer for the envs \[1\] \(workers \[1\]\)"):
        Pool(gated([None, gate, None], "build"), starts_serially=True, start_timeout=1, num_workers=None)
