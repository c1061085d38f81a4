"""`max_worker_memory`: a worker that exceeds it is replaced between two episodes."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import pytest
from failing import MODES
from leaky_envs import LeakyEnv
from pairs import each
from pool_envs import CountingEnv, begun
from programs import pids_of

from remuda import Pool
from remuda._engine.options.checks import memory_limit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

LIMIT = "256MiB"  # far more than a worker without leaks uses


def leaky(*leaks: bool, length: int = 2, outside: bool = False) -> list[Any]:
    return [
        partial(LeakyEnv, tag, length, outside=outside) if leak else partial(CountingEnv, tag, length)
        for tag, leak in enumerate(leaks)
    ]


def play_until_replaced(pool: Pool, env: int, pid: int) -> list[Any]:
    """Returns the env's rows from a reset until the env is in another process, and to the end of that episode."""
    rows = [pool.reset()]
    while pids_of(pool)[env] == pid:
        rows += step_or_reset(pool)
    rows += step_or_reset(pool)
    while not rows[-1].terminations[env] and not rows[-2].terminations[env]:
        rows += step_or_reset(pool)
    return [(row.obs[env].tolist(), bool(row.terminations[env]), bool(row.truncations[env])) for row in rows]


def step_or_reset(pool: Pool) -> list[Any]:
    batch = pool.step([1] * pool.num_envs)
    if pool.autoreset == "disabled" and batch.terminations.any():
        return [batch, pool.reset()]
    return [batch]


@each(mode=MODES, on_fault=["raise", "restart", "resume"], outside=[False, True])
def test_a_worker_is_replaced_between_two_episodes(
    mode: Any, on_fault: Any, outside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The memory that leaks may be that of a child process."""
    with Pool(leaky(False, True, outside=outside), autoreset=mode, faults=on_fault, max_worker_memory=LIMIT) as pool:
        before = pids_of(pool)
        rows = play_until_replaced(pool, 1, before[1])
        assert pids_of(pool)[0] == before[0]
        assert not any(truncated for _, _, truncated in rows)
        steps = [obs[2] for obs, _, _ in rows]
        whole = [0, 1] if mode == "same_step" else [0, 1, 2]
        assert steps[: len(whole) * 3] == whole * 3  # no episode was truncated
        assert pool.stats().memory_renewals == 1
        assert pool.stats().restarts == 1
    (record,) = [record for record in caplog.records if "max_worker_memory" in record.getMessage()]
    assert (record.levelno, "worker 1 takes" in record.getMessage()) == (logging.WARNING, True)
    assert "256 MiB; it is replaced between two episodes" in record.getMessage()


@each(mode=["next_step", "same_step"], on_fault=["raise", "restart", "resume"])
def test_observations_and_rollouts_after_a_replacement(mode: Any, on_fault: Any) -> None:
    with Pool(leaky(False, True), autoreset=mode, faults=on_fault, max_worker_memory=LIMIT) as pool:
        before, last = pids_of(pool)[1], pool.reset()
        while pids_of(pool)[1] == before:
            last = pool.step([1, 1])
        pool.request_obs()
        assert pool.recv().obs.tolist() == last.obs.tolist()
        for step in pool.rollout(4):
            step.act([1] * len(step.env_ids))


def test_a_worker_below_the_limit_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with Pool(leaky(False, False, length=1), max_worker_memory=LIMIT) as pool:
        before = pids_of(pool)
        pool.reset()
        for _ in range(50):
            pool.step([1, 1])
        assert pids_of(pool) == before
        assert pool.stats().memory_renewals == 0
    assert not caplog.records


def test_a_limit_that_is_too_low_replaces_the_worker_after_each_episode() -> None:
    with begun(leaky(False, length=3), max_worker_memory=1, autoreset="same_step") as pool:
        for _ in range(3):
            before = pids_of(pool)
            batches = [pool.step([1]) for _ in range(3)]
            assert [bool(batch.terminations[0]) for batch in batches] == [False, False, True]
            assert pids_of(pool) != before
        assert pool.stats().memory_renewals == 3


def test_a_worker_may_be_replaced_at_a_reset_within_an_episode() -> None:
    with begun(leaky(False, length=100), max_worker_memory=1) as pool:
        pool.step([1])
        before = pids_of(pool)
        pool.reset(seed=7, options={"level": 2})
        assert pids_of(pool) != before
        assert (pool.get_attr("last_seed"), pool.get_attr("last_options")) == ([7], [{"level": 2}])


def test_memory_renewals_with_spares_and_background_resets() -> None:
    with begun(leaky(False, False, False), seed=3, max_worker_memory=1, spares=1) as pool:
        for _ in range(9):
            pool.step([1, 1])
        assert pool.stats().memory_renewals > 1
    with begun(leaky(False, False), seed=3, max_worker_memory=1, autoreset="background") as pool:
        for _ in range(6):
            pool.step([1, 1])
            while pool.pending:
                pool.recv()
        assert pool.stats().memory_renewals > 1


@pytest.mark.parametrize(
    ("written", "size"),
    [(12345, 12345), ("12345", 12345), ("2GiB", 2 << 30), ("1.5 g", 3 << 29), ("500MB", 500_000_000), ("7KiB", 7168)],
)
def test_formats_of_max_worker_memory(written: Any, size: int) -> None:
    assert memory_limit(written) == size


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_worker_memory": "much"}, ValueError, "expected max_worker_memory such as .* got 'much'"),
        ({"max_worker_memory": 0}, ValueError, "expected max_worker_memory such as .* got 0"),
        ({"max_worker_memory": 1.5}, TypeError, "expected max_worker_memory to be bytes, .* got 1.5"),
        ({"max_worker_memory": 1, "num_workers": 1}, ValueError, "expected num_workers=None .* of several envs"),
        ({"max_worker_memory": 1, "backend": "serial"}, ValueError, "expected max_worker_memory=None for backend="),
        ({"max_worker_memory": 1, "vector_size": 1}, ValueError, "expected max_worker_memory=None with vector_size=1"),
    ],
)
def test_wrong_values_of_max_worker_memory_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Pool([CountingEnv] * 2, **options)


def test_max_worker_memory_disables_the_trial(measured_by_default: None) -> None:
    for options in ({}, {"num_workers": "auto"}):
        with Pool([CountingEnv] * 3, max_worker_memory="1TiB", **options) as pool:  # type: ignore[arg-type]
            assert pool.num_workers == 3
