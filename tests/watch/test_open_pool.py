"""Watching a pool from another process: the watcher needs only its process id, and only reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv
from programs import Script

from remuda import Pool

if sys.platform != "linux":
    pytest.skip("it reads /proc", allow_module_level=True)

from remuda._watch.finding import NotFoundError, find
from remuda._wire.pool_description import NoDescriptionError, PoolDescription, start_of


def only(pid: int) -> Any:
    (pool,) = find(pid)
    return pool


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_a_watched_pool_has_the_stats_of_the_pool(backend: Any) -> None:
    workers = 1 if backend == "serial" else 2
    with Pool([lambda: CountingEnv(length=3)] * 4, num_workers=workers, backend=backend, name="herd") as pool:
        pool.reset()
        for _ in range(10):
            pool.step(np.zeros(4, np.int64))
        pool.split(workers)
        watched = only(os.getpid())
        assert watched.description.setup["parts"] == workers
        ours, watched_stats = pool.stats(), watched.look()
        assert (watched.description.name, watched_stats.setup) == ("herd", ours.setup)
        assert [env.steps for env in watched_stats.envs] == [env.steps for env in ours.envs]
        assert [env.episodes for env in watched_stats.envs] == [env.episodes for env in ours.envs] != [0] * 4
        assert [worker.pid for worker in watched_stats.workers] == [worker.pid for worker in ours.workers]


def test_a_pool_without_a_name_has_that_of_its_program(script: Callable[..., Script]) -> None:
    running = script("pool = Pool(counting(1), num_workers=1)\nsay(1)\ninput()")
    running.read_line()
    pool = only(running.process.pid)
    stats = pool.look()
    assert (pool.name, pool.as_json(stats, stats)["name"]) == ("script.py", "script.py")
    running.write_line()
    running.await_end()


def test_the_memory_of_a_watched_pool_is_mapped_read_only() -> None:
    with Pool([CountingEnv] * 2, num_workers=1) as pool:
        pool.reset()
        before = Path("/proc/self/maps").read_text()
        watched = only(os.getpid())
        new = [line for line in Path("/proc/self/maps").read_text().splitlines() if line not in before.splitlines()]
        assert [line.split()[1] for line in new if "memfd:remuda" in line] == ["r--s"]
        del watched
        assert Path("/proc/self/maps").read_text().count("memfd:remuda") == before.count("memfd:remuda")


def test_open_pools_are_found_in_order_of_creation_and_closed_ones_are_not_even_if_a_batch_is_held() -> None:
    options: Any = {"backend": "serial", "num_workers": 1}
    with Pool([CountingEnv], name="first", **options) as first, Pool([CountingEnv], name="second", **options):
        batch = first.reset()
        assert [pool.description.name for pool in find(os.getpid())] == ["first", "second"]
    assert batch.obs.shape == (1, 4)
    with pytest.raises(NotFoundError, match="which has none"):
        find(os.getpid())


def test_invalid_arenas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data, message in [(b"", "it is empty"), (b"x" * 64, "it is no arena")]:
        path.write_bytes(data)
        with path.open("rb") as file, pytest.raises(NoDescriptionError, match=message):
            PoolDescription.read(file.fileno())
    description = PoolDescription(1, 2, "name", {}, {})
    header = (0x616475_6D6572).to_bytes(8, "little") + (1).to_bytes(8, "little") + (64).to_bytes(8, "little")
    path.write_bytes(header.ljust(64, b"\0"))
    with path.open("r+b") as file:
        with pytest.raises(NoDescriptionError, match="it has no description"):
            PoolDescription.read(file.fileno())
        description.write(file.fileno(), 64)
        assert PoolDescription.read(file.fileno()) == description
        PoolDescription(1, 2, "name", {}, {}, version=99).write(file.fileno(), 64)
        with pytest.raises(NoDescriptionError, match="it is of version 99"):
            PoolDescription.read(file.fileno())


def test_start_of_identifies_a_running_process() -> None:
    assert start_of(os.getpid()) == start_of(os.getpid()) is not None
    assert start_of(4194304) is None
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert start_of(pid) is None, "expected a zombie not to count as running"
    os.waitpid(pid, 0)
