"""Spinning of waiting workers and of the pool: there are never more spinning threads than cores beside the caller's."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from pool_envs import counting

from remuda import Pool
from remuda._engine.startup.start import spinning_for
from remuda._system.cores import usable_cores
from remuda._wire.layout import Spinning


def test_all_may_spin_with_a_core_for_each_worker_and_the_caller() -> None:
    spinning = spinning_for("process", num_workers=3, max_concurrency=None, cores=4)
    assert spinning.worker_ns > 0
    assert spinning.pool_ns > 0
    assert not spinning.one_sleeps


def test_with_as_many_workers_as_cores_one_worker_sleeps() -> None:
    spinning = spinning_for("process", num_workers=4, max_concurrency=None, cores=4)
    assert spinning.worker_ns > 0
    assert spinning.one_sleeps
    assert spinning.pool_ns == 0  # the worker without a core of its own uses the caller's core while the pool waits


@pytest.mark.parametrize("cores", [0, 1, 3])
def test_more_workers_than_cores_do_not_spin(cores: int) -> None:
    spinning = spinning_for("process", num_workers=max(1, cores + 1), max_concurrency=None, cores=cores)
    assert spinning.worker_ns == spinning.pool_ns == 0


def test_on_a_single_core_a_single_worker_does_not_spin() -> None:
    assert spinning_for("process", num_workers=1, max_concurrency=None, cores=1).worker_ns == 0


@pytest.mark.parametrize(("max_concurrency", "may_spin"), [(3, True), (4, False), (100, False)])
def test_the_pool_may_spin_if_max_concurrency_leaves_it_a_core(max_concurrency: int, may_spin: bool) -> None:
    spinning = spinning_for("process", num_workers=8, max_concurrency=max_concurrency, cores=4)
    assert (spinning.pool_ns > 0) == may_spin
    assert spinning.worker_ns == 0


def test_the_serial_backend_does_not_spin() -> None:
    assert spinning_for("serial", num_workers=1, max_concurrency=None, cores=64) == Spinning()


@pytest.mark.parametrize("with_gil", [True, False])
def test_threads_spin_like_processes_without_the_gil(with_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: with_gil, raising=False)
    of_threads = spinning_for("thread", num_workers=2, max_concurrency=None, cores=4)
    of_processes = spinning_for("process", num_workers=2, max_concurrency=None, cores=4)
    assert of_threads == (Spinning() if with_gil else of_processes)


def test_a_worker_that_migrates_to_the_callers_core_keeps_its_affinity() -> None:
    """One worker sleeps, and migrates to the caller's core, which changes here with each step."""
    cores = usable_cores()
    if cores < 2:
        pytest.skip("takes two cores")
    before = os.sched_getaffinity(0)
    with Pool(counting(cores), num_workers=cores, log_advice=False) as pool:
        pool.reset(seed=0)
        try:
            for cpu in sorted(before) * 10:
                os.sched_setaffinity(0, {cpu})
                pool.step(np.zeros(cores, np.int64))
        finally:
            os.sched_setaffinity(0, before)
        assert pool.apply(lambda env: os.sched_getaffinity(0)) == [before] * cores
