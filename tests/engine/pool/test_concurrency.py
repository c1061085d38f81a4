"""Limits of the number of workers that run at once, and pools with any number of envs and workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairs import each
from pool_envs import (
    EnvFn,
    Gate,
    Gauge,
    begun,
    counting,
    hooked,
    make_gates,
    rewards,
)

from remuda import Pool

# -- concurrency -----------------------------------------------------------------------------------------


def gauged(n: int, gauge: Gauge, gates: Sequence[Gate] = ()) -> list[EnvFn]:
    def busy(env: Any, *action: Any) -> None:
        gauge.enter()
        if gates:
            gates[env.tag].wait()
        gauge.leave()

    return hooked(n, range(n), step=busy, reset=busy)


@each(backend=["process", "thread"], limit=[1, 2])
def test_no_more_workers_run_at_once_than_allowed(limit: int, backend: Any, tmp_path: Path) -> None:
    gauge = Gauge(tmp_path / "gauge")
    with begun(gauged(6, gauge), backend=backend, num_workers=4, max_concurrency=limit) as pool:
        for _ in range(20):
            pool.step([0] * 6)
        for _ in range(20):
            pool.send([1, 2, 3], env_ids=[0, 2, 4])
            pool.send([4, 5, 6], env_ids=[5, 3, 1])
            pool.recv(min_envs=1)
            if pool.pending:
                pool.recv()
    assert gauge.entries() == 6 * 41
    assert gauge.peak() <= limit


def test_as_many_workers_run_at_once_as_allowed(tmp_path: Path) -> None:
    gauge, gates = Gauge(tmp_path / "gauge"), make_gates(tmp_path, 4)
    with Pool(gauged(4, gauge, gates), max_concurrency=2) as pool:
        pool.send_reset()
        for first in (0, 2):
            for gate in gates[first : first + 2]:
                gate.await_arrival()
            assert gauge.entries() == first + 2
            assert len(pool.recv(timeout=0)) == 0
            call = pool.call_async("get_wrapper_attr", "tag", env_ids=[first])
            for gate in gates[first : first + 2]:
                gate.open()
            assert len(pool.recv(min_envs=2, max_envs=2)) == 2
            assert call.result() == [first]
    assert gauge.peak() == 2


# -- numbers ---------------------------------------------------------------------------------------------


NUMBERS = [(n, workers) for n in (1, 2, 3, 7, 64, 65, 200) for workers in {1, 2, n // 2, n - 1, n} if 0 < workers <= n]


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "backend"), [*((*numbers, "serial") for numbers in NUMBERS), (65, 3, "process")]
)
def test_any_number_of_envs_and_workers(num_envs: int, num_workers: int, backend: Any) -> None:
    with Pool(counting(num_envs), num_workers=num_workers, backend=backend) as pool:
        assert [i for worker in pool.workers for i in worker.env_ids] == list(range(num_envs))
        assert {len(worker.env_ids) for worker in pool.workers} <= {
            num_envs // num_workers,
            -(-num_envs // num_workers),
        }
        assert pool.reset().obs[:, 0].tolist() == list(range(num_envs))
        for i in range(3):
            assert pool.step(np.arange(num_envs) + i).rewards.tolist() == [k + i for k in range(num_envs)]
        every_other = list(range(0, num_envs, 2))[::-1]
        pool.send(every_other, env_ids=every_other)
        assert rewards(pool.recv()) == {i: float(i) for i in every_other}
