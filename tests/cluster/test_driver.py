"""If the driver is killed or drops its pool, the actors, fork servers and workers on the cluster end."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.conftest import TwoNodes, shards
from cluster_envs import Scripted
from programs import Script, Watched, end_process
from reaper import VARIABLE, processes_with

from remuda import Pool, Ray


def test_nothing_outlives_the_driver(cluster: TwoNodes, script: Callable[..., Script]) -> None:
    program = script(f"""
from cluster_envs import Scripted

pool = Pool([Scripted] * 4, backend=Ray(shards=2, cpus_per_shard=2, address={cluster.address!r}), faults="restart")
policy = lambda obs: [0] * len(obs)
pool.reset(seed=0)
say(pids(pool))
for rollout in pool.rollouts(policy, steps=64):
    pool.publish(policy)
""")
    workers = program.read_line()
    ours = Watched(shards(cluster.kept.pids()))
    assert len(workers) == 4 and len(ours.pids) >= 4 + 2  # the workers, two actors and their fork servers
    assert set(workers) <= set(ours.pids) & set(with_arenas())
    end_process(program.process.pid)
    ours.await_end()
    assert with_arenas() == []


@pytest.mark.usefixtures("kept_actors")
def test_a_dropped_pool_is_freed_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        pool = Pool([Scripted] * 2, backend=Ray(shards=2, backend="serial"), faults="restart")
        pool.reset(seed=0)
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
    finally:
        gc.enable()


def with_arenas() -> list[int]:
    """Returns the ids of this run's processes that map a pool's memory."""
    return [pid for pid in processes_with(f"{VARIABLE}={os.environ[VARIABLE]}") if "/memfd:remuda" in _maps(pid)]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""  # the process has just ended
