"""What a pool says of the time that it has taken."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from pool_envs import CountingEnv

from remuda import Pool

SECONDS = 0.02  # of CPU time, or of sleep


class BusyEnv(CountingEnv):
    """A step takes CPU time."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        burn(SECONDS)
        return super().step(action)


class SleepyEnv(CountingEnv):
    """A step takes time, but none of the CPU's."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(SECONDS)
        return super().step(action)


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere CPU time is not measured")
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_cpu_time_is_what_envs_use_and_not_what_their_caller_does(backend: Any) -> None:
    with Pool([BusyEnv, BusyEnv], num_workers=2, backend=backend) as pool:
        pool.reset()
        for _ in range(3):
            pool.step([0, 0])
            burn(10 * SECONDS)
        stats = pool.stats()
    assert 5 * SECONDS <= stats.cpu_seconds < 12 * SECONDS  # how long workers have spun is known but nearly
    assert stats.env_seconds >= 6 * SECONDS


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere CPU time is not measured")
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_time_that_envs_sleep_is_no_cpu_time(backend: Any) -> None:
    with Pool([SleepyEnv, SleepyEnv], num_workers=2, backend=backend) as pool:
        pool.reset()
        for _ in range(10):
            pool.step([0, 0])
        stats = pool.stats()
    assert stats.env_seconds >= 20 * SECONDS
    assert stats.cpu_seconds < 10 * SECONDS
