"""CPU time and wall time in `pool.stats()`."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from pool_envs import CountingEnv

from remuda import Pool

SECONDS = 0.02  # CPU time or sleep of each step


class BusyEnv(CountingEnv):
    """An env that uses CPU time in its steps."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        burn(SECONDS)
        return super().step(action)


class SleepyEnv(CountingEnv):
    """An env that sleeps in its steps."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(SECONDS)
        return super().step(action)


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere CPU time is not measured")
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_cpu_time_excludes_the_callers(backend: Any) -> None:
    with Pool([BusyEnv, BusyEnv], num_workers=2, backend=backend) as pool:
        pool.reset()
        for _ in range(3):
            pool.step([0, 0])
            burn(10 * SECONDS)
        stats = pool.stats()
    assert 5 * SECONDS <= stats.cpu_seconds < 12 * SECONDS  # the time for which workers spin is an estimate
    assert stats.env_seconds >= 6 * SECONDS


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere CPU time is not measured")
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_cpu_time_excludes_sleep(backend: Any) -> None:
    with Pool([SleepyEnv, SleepyEnv], num_workers=2, backend=backend) as pool:
        pool.reset()
        for _ in range(10):
            pool.step([0, 0])
        stats = pool.stats()
    assert stats.env_seconds >= 20 * SECONDS
    assert stats.cpu_seconds < 10 * SECONDS
