"""Spinning of waiting workers and of the pool: there are never more spinning threads than cores beside the caller's."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
from pool_envs import begun, counting

from remuda._engine.startup.start import spinning_for
from remuda._system.cores import usable_cores
from remuda._wire.layout import Spinning


@pytest.mark.parametrize(
    ("arguments", "expected"),  # the latter: whether workers and the pool spin, and one worker sleeps
    [
        (("process", 3, None, 4), (True, True, False)),
        (("process", 4, None, 4), (True, False, True)),  # the worker that sleeps uses the caller's core
        (("process", 1, None, 0), (False, False, False)),
        (("process", 2, None, 1), (False, False, False)),
        (("process", 4, None, 3), (False, False, False)),
        (("process", 1, None, 1), (False, False, True)),
        (("process", 8, 3, 4), (False, True, False)),
        (("process", 8, 4, 4), (False, False, False)),
        (("process", 8, 100, 4), (False, False, False)),
        (("serial", 1, None, 64), (False, False, False)),
    ],
)
def test_there_are_never_more_spinning_waiters_than_cores_beside_the_callers(arguments: Any, expected: Any) -> None:
    found = spinning_for(*arguments)  # backend, num_workers, max_concurrency, cores
    assert (found.worker_ns > 0, found.pool_ns > 0, found.one_sleeps) == expected


@pytest.mark.parametrize("with_gil", [True, False])
def test_threads_spin_like_processes_without_the_gil(with_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: with_gil, raising=False)
    of_threads, of_processes = (spinning_for(backend, 2, None, 4) for backend in ("thread", "process"))
    assert of_threads == (Spinning() if with_gil else of_processes)


def test_a_worker_that_migrates_to_the_callers_core_keeps_its_affinity() -> None:
    """One worker sleeps, and migrates to the caller's core, which changes here with each step."""
    cores = usable_cores()
    if cores < 2:
        pytest.skip("takes two cores")
    before = os.sched_getaffinity(0)
    with begun(counting(cores), num_workers=cores, log_advice=False, seed=0) as pool:
        try:
            for cpu in sorted(before) * 10:
                os.sched_setaffinity(0, {cpu})
                pool.step(np.zeros(cores, np.int64))
        finally:
            os.sched_setaffinity(0, before)
        assert pool.apply(lambda env: os.sched_getaffinity(0)) == [before] * cores
