"""`renew_every` and `max_worker_memory`: envs that are rebuilt between two episodes, since they degrade or leak."""

from __future__ import annotations

import logging
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from accidents import raise_value_error
from failing import MODES, fault_in
from leaky_envs import LeakyEnv
from pairs import each, pairwise
from pool_envs import CountingEnv, Diary, Gate, begun, counting, hooked
from programs import kill, pids_of

from remuda import FaultPolicy, Pool
from remuda._engine.options.checks import memory_limit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


@pairwise(mode=MODES, num_workers=[1, 3], max_restarts=[None, 0])
def test_an_env_is_rebuilt_after_renew_every_episodes(
    max_restarts: int | None, num_workers: int, mode: Any, tmp_path: Path
) -> None:
    """A renewal does not count as a fault."""
    builds = Diary(tmp_path / "builds")
    restarts = FaultPolicy("restart", renew_every=2, max_restarts=0)
    faults = FaultPolicy(renew_every=2) if max_restarts is None else restarts
    env_fns = hooked(3, which=[0, 1, 2], length=3, build=lambda env: builds.note(env.tag))
    with Pool(env_fns, num_workers=num_workers, faults=faults, autoreset=mode) as pool:
        episodes = [pool.reset().obs[1, 1]]
        for _ in range(5):
            for step in (1, 2, 3):
                batch = pool.step([step] * 3)
            assert batch.terminations.all()
            if mode != "same_step":
                batch = pool.reset() if mode == "disabled" else pool.step([0] * 3)
            assert batch.obs[:, 2].tolist() == [0] * 3
            episodes.append(batch.obs[1, 1])
        assert episodes == [1, 2] * 3
    assert sorted(builds.lines()) == sorted("012" * 3)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_renewal_closes_the_env_and_replaces_a_worker_that_has_no_other_env(num_workers: int, tmp_path: Path) -> None:
    closed = Diary(tmp_path / "closed")
    env_fns = hooked(2, length=1, close=lambda _: closed.note("x"))
    faults = FaultPolicy(renew_every=1)
    with begun(env_fns, num_workers=num_workers, faults=faults, autoreset="same_step") as pool:
        pool.set_attr("level", 7, lasting=True)
        before = pids_of(pool)
        pool.step([1, 1])
        after = pids_of(pool)
        assert set(before) & set(after) == (set(before) if num_workers == 1 else set())
        assert closed.lines() == ["x"]
        assert pool.get_attr("total_steps") == [0, 0]
        assert [pool.call("pid"), pool.get_attr("tag"), pool.get_attr("level")] == [(after * 2)[:2], [0, 1], [7, 7]]


def test_an_env_that_raises_in_close_is_renewed() -> None:
    with begun(hooked(2, length=1, close=raise_value_error), faults=FaultPolicy(renew_every=1)) as pool:
        before = pids_of(pool)[1]
        for _ in range(4):
            pool.step([1, 1])
        assert pids_of(pool)[1] != before
        pool.close(terminate=True)


def test_a_close_that_hangs_is_no_fault_of_the_successor() -> None:
    faults = FaultPolicy("restart", renew_every=1, backoff=0, call_timeout=1.0)
    with begun(hooked(2, length=2, close=lambda env: signal.pause()), faults=faults, autoreset="next_step") as pool:
        before = pids_of(pool)[1]
        for _ in range(3):
            batch = pool.step([1, 1])
        assert pids_of(pool)[1] != before
        assert not batch.truncations.any()
        kill(pool, 1)
        fault = fault_in(pool.step([1, 1]), 1)
        assert (fault.kind, fault.operation) == ("death", "nothing")
        pool.close(terminate=True)


# -- the count of episodes -------------------------------------------------------------------------------


@each(num_workers=[1, 3], mode=MODES)
def test_episodes_that_a_reset_ends_count(mode: Any, num_workers: int) -> None:
    faults = FaultPolicy(renew_every=2)
    with Pool(counting(3, length=3), num_workers=num_workers, faults=faults, autoreset=mode) as pool:
        episodes = [pool.reset(seed=seed).obs[1, 1].item() for seed in range(4)]  # each reset ends the previous episode
        assert episodes == [1, 2, 1, 2]
        assert pool.get_attr("last_seed") == [3, 4, 5]
        pool.step([1] * 3)
        assert pool.reset(options={"level": 1}).obs[:, 1].tolist() == [1] * 3  # each env has had its two episodes
        assert pool.get_attr("last_options") == [{"level": 1}] * 3
        assert pool.reset(env_ids=[1]).obs[0, 1] == 2
        batch = [pool.step([1] * 3) for _ in range(3)][-1]
        assert batch.terminations.all()
        if mode != "same_step":
            batch = pool.reset() if mode == "disabled" else pool.step([1] * 3)
        assert batch.obs[:, 1].tolist() == [2, 1, 2]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_unused_reset_in_advance_does_not_count_as_an_episode(num_workers: int, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env_fns = hooked(2, length=1, autoreset=lambda env: gate.wait())
    with begun(env_fns, num_workers=num_workers, faults=FaultPolicy(renew_every=2), resets_ahead=True) as pool:
        assert pool.step([1, 1]).terminations.all()
        gate.let_pass()  # this is the reset in advance
        pool.send_reset(options={"level": 1}, env_ids=[1])  # the worker resets again, with these options
        gate.let_pass()
        assert pool.recv().obs.tolist() == [[1, 3, 0, -1]]
        assert pool.step([1, 1]).terminations[1]
        assert pool.step([1, 1]).obs[1, 1] == 1  # the env was rebuilt


# -- max_worker_memory -----------------------------------------------------------------------------------


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
