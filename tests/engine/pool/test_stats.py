"""CPU time and wall time in `pool.stats()`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pool_envs import CountingEnv, begun

SECONDS = 0.02  # CPU time or sleep of each step


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
