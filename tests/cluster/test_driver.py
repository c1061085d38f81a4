"""If the driver is killed, its actors, fork servers and workers on the cluster end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.conftest import TwoNodes, shards
from programs import Script, Watched, end_process
from reaper import VARIABLE, processes_with

COURSES = {
    "steps": "while True: pool.step([0] * 4)",
    "rollouts": "for rollout in pool.rollouts(policy, steps=64): pool.publish(policy)",
}


@pytest.mark.parametrize("course", COURSES)
def test_nothing_outlives_the_driver(cluster: TwoNodes, script: Callable[..., Script], course: str) -> None:
    program = script(f"""
from cluster_envs import Scripted

pool = Pool([Scripted] * 4, backend=Ray(shards=2, cpus_per_shard=2, address={cluster.address!r}), faults="restart")
policy = lambda obs: [0] * len(obs)
pool.reset(seed=0)
say(pids(pool))
{COURSES[course]}
""")
    workers = program.read_line()
    ours = Watched(shards())
    assert len(workers) == 4 and len(ours.pids) >= 4 + 2  # the workers, two actors and their fork servers
    assert set(workers) <= set(ours.pids) & set(with_arenas())
    end_process(program.process.pid)
    ours.await_end()
    assert with_arenas() == []


def with_arenas() -> list[int]:
    """Returns the ids of this run's processes that map a pool's memory."""
    return [pid for pid in processes_with(f"{VARIABLE}={os.environ[VARIABLE]}") if "/memfd:remuda" in _maps(pid)]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""  # the process has just ended
