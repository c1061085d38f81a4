"""`pool.stats()` counts the pool's steps, resets and faults, on every backend, in every mode and across restarts."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from accidents import once, raise_value_error
from hypothesis import given
from hypothesis import strategies as st
from leaky_envs import LEAK, LeakyEnv
from made_up_stats import each, snapshot
from pool_envs import Gate, begun, counting, hooked
from programs import kill
from rollout_envs import ending
from spare_envs import step, uneven
from vector_envs import synced

from remuda import ClosedError, EnvError, FaultPolicy, Pool, WorkerDiedError
from remuda._watch.finding import find
from remuda._worker.memory import own_bytes
from remuda.stats import Durations, PoolStats

BACKENDS = ("process", "thread", "serial")
MODES = ("next_step", "same_step", "disabled", "background")


def totals(stats: PoolStats) -> list[tuple[int, int, int]]:
    """Returns the steps, resets and episodes of each env."""
    return [(env.steps, env.reset.count, env.episodes) for env in stats.envs]


def play(pool: Pool, batches: int, mode: str = "next_step") -> None:
    batch = pool.reset()
    for _ in range(batches):
        batch = step(pool, mode, batch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_resets_and_episodes_of_each_env(backend: Any) -> None:
    with Pool(ending([3, 5]), backend=backend, num_workers=2) as pool:
        unused = pool.stats()
        play(pool, 8)
        stats = pool.stats()
    with pytest.raises(ClosedError):
        pool.stats()
    assert (unused.seconds, unused.batches, unused.steps, unused.verdict.cause) == (0.0, 0, 0, "unknown")
    assert "0 steps, 0 a second" in str(unused)
    assert unused.scalars()["remuda/steps"] == 0.0
    # Env 0 made 3 steps, a reset, 3 steps and a reset. Env 1 made 5 steps, a reset and 2 steps.
    assert totals(stats) == [(6, 3, 2), (7, 2, 1)]
    assert [env.lengths for env in stats.envs] == [(3, 3), (5,)]
    assert stats.batches == 9
    assert stats.steps == 18
    assert [worker.env_ids for worker in stats.workers] == [(0,), (1,)]
    assert [env.worker for env in stats.envs] == [0, 1]
    assert stats.episodes == 3


@pytest.mark.parametrize("mode", MODES)
def test_returns_are_sums_of_rewards_in_every_mode(mode: Any) -> None:
    rewards: list[list[float]] = [[], []]

    with Pool(ending([2, 3]), autoreset=mode, num_workers=1) as pool:
        batch, total = pool.reset(), [0.0, 0.0]
        for _ in range(100):
            batch = step(pool, mode, batch)
            for env, reward, ended in zip(
                batch.env_ids, batch.rewards, batch.terminations | batch.truncations, strict=True
            ):
                total[env] += reward
                if ended:
                    rewards[env].append(total[env])
                    total[env] = 0.0
        stats = pool.stats()
    for env in (0, 1):  # an episode may have ended in a batch that was not received
        late = stats.envs[env].episodes - len(rewards[env])
        assert [*stats.envs[env].returns][: 15 - late] == pytest.approx(rewards[env][late - 15 :])
        assert stats.envs[env].lengths == (2 + env,) * 15  # the last 15 are kept


def test_a_difference_of_snapshots_counts_what_happened_in_between() -> None:
    with Pool(counting(2, length=3), backend="thread", num_workers=1) as pool:
        play(pool, 4)
        before = pool.stats()
        text = str(before)
        for _ in range(4):
            pool.step([0, 0])
        after = pool.stats()
    assert str(before) == text  # a snapshot never changes
    between = after - before
    assert totals(between) == [(3, 1, 1), (3, 1, 1)]
    assert between.batches == 4
    assert between.steps == 8
    assert [len(env.returns) for env in between.envs] == [1, 1]
    assert 0 < between.seconds == between.caller.seconds == between.workers[0].seconds
    assert between.caller.waiting + between.caller.gathering + between.caller.own == pytest.approx(between.seconds)
    with pytest.raises(ValueError, match="two snapshots of the same pool"):
        between - dataclasses.replace(before, setup=dataclasses.replace(before.setup, envs_of_worker=(1, 1)))
    with pytest.raises(ValueError, match="expected the later snapshot first, got the earlier one"):
        _ = before - after
    with pytest.raises(TypeError, match="unsupported op"):
        _ = after - 3  # type: ignore[operator]


@pytest.mark.parametrize("backend", BACKENDS)
def test_slow_steps_and_resets_are_measured(backend: Any) -> None:
    """The envs sleep, because a sleep never takes less time than requested, even on a busy machine."""
    reset, late = 0.03, 0.02

    def sleepy(seconds: float) -> Callable[..., None]:
        return lambda *_: time.sleep(seconds)

    envs = hooked(2, length=3, reset=sleepy(reset), autoreset=sleepy(reset), step=sleepy(late))  # env 1 is the slow one
    with Pool(envs, backend=backend, num_workers=2, autoreset="same_step") as pool:
        play(pool, 6, "same_step")
        stats = pool.stats()
    fast, slow = stats.envs
    assert slow.step.p50 >= late * 0.8
    assert slow.step.mean >= late
    assert slow.reset.count == 3
    assert slow.reset.mean >= reset
    assert slow.step.p50 < late + reset  # a reset within a step does not count as step time
    assert slow.step.total + slow.reset.total <= stats.workers[1].busy * 1.001
    assert fast.step.total < slow.step.total
    assert stats.caller.waiting >= 6 * late
    if backend != "serial":
        assert stats.workers[0].idle.count >= 5
        assert stats.workers[0].idle.p50 >= late * 0.5


def test_a_successor_continues_the_counts_of_a_killed_worker() -> None:
    with begun(counting(2), num_workers=2, faults=FaultPolicy("restart", backoff=0), log_advice=False) as pool:
        pool.step([0, 0])
        first = kill(pool, 1)
        while not pool.step([0, 0]).truncations[1]:
            pass
        for _ in range(2):  # a reset and a step
            pool.step([0, 0])
        stats = pool.stats()
        assert [env.faults for env in stats.envs] == [0, 1]
        assert [worker.restarts for worker in stats.workers] == [0, 1]
        assert stats.restarts == stats.faults == 1
        assert stats.workers[1].pid not in (None, first)
        assert stats.envs[1].steps >= 2  # including one of its predecessor
        assert stats.envs[1].reset.count == 2


@pytest.mark.parametrize("policy", ["raise", "restart"])
def test_an_exception_counts_as_a_fault(policy: Any) -> None:
    with begun(hooked(2, step=raise_value_error), backend="serial", faults=policy, log_advice=False) as pool:
        if policy == "raise":
            with pytest.raises(EnvError):
                pool.step([0, 0])
        else:
            assert pool.step([0, 0]).truncations.tolist() == [False, True]
        assert [env.faults for env in pool.stats().envs] == [0, 1]


def test_spares_are_counted_as_envs() -> None:
    with Pool(uneven(6), spares=2) as pool:
        play(pool, 12)
        stats = pool.stats()
    assert len(stats.envs) == len(stats.workers) == 6
    assert stats.setup.num_envs == 4
    assert all(env.steps for env in stats.envs)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_vector_env_is_timed_as_a_whole(mode: Any) -> None:
    with begun(
        synced(counting(4, length=3), 2, mode), vector_size=2, backend="thread", num_workers=2, autoreset=mode
    ) as pool:
        for _ in range(6):
            pool.step(np.zeros(4, int))
        stats = pool.stats()
    assert [env.steps for env in stats.envs] == [6, 6, 6, 6]
    assert stats.step.count == 12  # steps of two vector envs
    assert stats.envs[0].step.total == stats.envs[1].step.total
    ended = 2 if mode == "same_step" else 1
    assert [(env.episodes, env.lengths) for env in stats.envs] == [(ended, (3,) * ended)] * 4


def test_parts_and_partial_batches_are_counted_together() -> None:
    with Pool(counting(4), backend="thread", num_workers=2) as pool:
        left, right = pool.split(2)
        for part in (left, right):
            part.reset()
            part.step([0, 0])
        stats = pool.stats()
        assert stats.setup.parts == 2
        assert stats.batches == 4
        assert [env.steps for env in stats.envs] == [1] * 4
        pool.split(1)
        pool.send([0, 0, 0, 0])
        received = 0
        while received < 4:
            received += len(pool.recv(min_envs=1))
        assert [env.steps for env in pool.stats().envs] == [2] * 4


def test_the_reported_memory_is_the_memory_that_is_limited() -> None:
    """The memory includes that of the processes that the env has started. Queues before the pool do not count."""
    began = time.monotonic()
    with begun([partial(LeakyEnv, tag, 2, outside=tag == 1) for tag in (0, 1)], num_workers=2) as pool:
        (watched,) = find(os.getpid())
        workers = pool.stats().workers
        for worker in (*workers, *watched.look().workers):
            assert 0 <= worker.queued <= time.monotonic() - began
        del watched
        shown = [worker.memory for worker in workers]
        limited = pool.apply(lambda env: own_bytes())
        kill(pool, 0)
        with pytest.raises(WorkerDiedError):
            pool.step([0, 0])
        gone, _ = pool.stats().workers
    assert (gone.pid, gone.memory) == (None, 0)
    assert all(memory is not None and memory > LEAK for memory in shown)
    assert shown == pytest.approx(limited, rel=0.2)


def test_a_restarting_worker_reports_the_memory_of_its_successor(tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)
    with begun(hooked(2, (0,), build=build), num_workers=2, faults="restart") as pool:
        victim = kill(pool, 0)
        assert pool.step([0, 0]).truncations.tolist() == [True, False]
        pool.send([0, 0])
        assert pool.recv(min_envs=1).env_ids.tolist() == [1]
        gate.await_arrival()
        amid = pool.stats()
        both, late = amid.workers, (pool.stats() - amid).workers[0]
        gate.open()
        pool.recv()
        late_to_end, at_end = (pool.stats() - amid), pool.stats()
    assert (both[0].doing, both[1].doing) == ("rebuild", None)
    assert 0 < both[0].doing_since <= both[0].lost
    assert 0 < late.lost <= late.seconds  # an outage that began earlier counts from the beginning of the window
    assert (late_to_end.faults, late_to_end.restarts) == (0, 0)
    assert 0 < late_to_end.workers[0].lost <= late_to_end.seconds
    assert at_end.workers[0].doing != "rebuild"
    assert both[0].pid not in (victim, None)
    assert all(worker.memory is not None and worker.memory > 1 << 20 for worker in both)


# -- tables and scalars ----------------------------------------------------------------------------------


MS = 1e-3
GAMES = snapshot(steps=[each(5 * MS)] * 8, workers=1, cpu=0.01, waited=40 * MS, resets=[each(9 * MS, 10)] * 8)


def test_a_table_has_workers_envs_the_callers_time_and_the_verdict() -> None:
    lines = str(GAMES).splitlines()
    assert lines[0].startswith("8 envs in 1 process workers on 2 cores: 8080 steps")
    assert "waits for envs 100%" in lines[1]
    assert any(line.split()[:3] == ["0", "1000", "0-7"] for line in lines)  # the columns worker, pid and envs
    assert sum("5 ms" in line for line in lines) >= 8
    assert lines[-1] == GAMES.verdict.text


def test_a_table_of_many_envs_shows_the_slowest() -> None:
    stats = snapshot(steps=[each(1 * MS)] * 99 + [each(9 * MS)], workers=50, waited=10 * MS)
    text = str(stats)
    assert "envs: 12 of 100, the slowest" in text
    assert "workers: 12 of 50, the slowest" in text
    assert any(line.split()[:1] == ["99"] and "9 ms" in line for line in text.splitlines())


def test_scalars_are_flat_numbers_with_a_prefix() -> None:
    scalars = GAMES.scalars()
    assert all(name.startswith("remuda/") and type(value) is float for name, value in scalars.items())
    assert all(math.isfinite(value) for value in scalars.values())
    assert scalars["remuda/steps"] == 8080
    assert scalars["remuda/step/mean_seconds"] == pytest.approx(5 * MS)
    assert scalars["remuda/caller/waiting_share"] == pytest.approx(1.0, abs=1e-3)
    assert "remuda/idle/p99_seconds" not in scalars  # no worker was idle
    assert "remuda/episode_return_mean" not in scalars
    assert set(GAMES.scalars("")) == {name.removeprefix("remuda/") for name in scalars}


# -- durations -------------------------------------------------------------------------------------------


seconds_lists = st.lists(st.floats(300e-9, 100.0), min_size=1, max_size=300)


@given(seconds_lists)
def test_counts_and_means_are_exact_and_quantiles_approximate(seconds: list[float]) -> None:
    durations = Durations.of(seconds)
    assert durations.count == len(seconds)
    assert durations.total == pytest.approx(sum(seconds))
    assert durations.mean == pytest.approx(np.mean(seconds))
    assert durations.max == max(seconds)
    for share in (0.5, 0.99):
        nth = sorted(seconds)[max(0, int(np.ceil(share * len(seconds))) - 1)]
        assert durations.quantile(share) == pytest.approx(nth, rel=0.25)
    assert durations.p50 <= durations.p99 <= durations.max


@given(seconds_lists, seconds_lists)
def test_a_difference_has_the_durations_in_between(before: list[float], after: list[float]) -> None:
    between = Durations.of(before + after) - Durations.of(before)
    assert between.count == len(after)
    assert between.total == pytest.approx(sum(after), abs=1e-6)
    assert max(after) <= between.max * 1.0001 <= max(after) * 1.2502 or between.max <= max(before + after)
    assert (Durations.of(before) + Durations.of(after)).count == len(before + after)


def test_durations_without_events_and_outside_of_all_buckets() -> None:
    none, wide = Durations(), Durations.of([1e-9, 1e6])
    assert (none.count, none.mean, none.max, none.p50, none.p99) == (0, 0.0, 0.0, 0.0, 0.0)
    assert (wide.count, wide.max) == (2, 1e6)
