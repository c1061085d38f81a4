"""Workers end with the process that owns them, even while an env hangs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import Gate
from programs import Script, Watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
START_METHODS = ("forkserver", "spawn", "fork")


@each(start_method=START_METHODS, stuck=["hold_the_gil", "burn_the_cpu", "wait_for_ever"])
def test_no_worker_outlives_its_parent(
    stuck: str, start_method: Any, script: Callable[..., Script], tmp_path: Path
) -> None:
    """The workers end while an env hangs. The simulators that the envs have started end with them."""
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = {gate!r}

def simulate(env):
    env.simulator = subprocess.Popen(["sh", "-c", "sleep 100000 & wait"])

def step(*_):
    gate.wait()
    {stuck}()

pool = Pool(
    [lambda: HookedEnv(build=simulate), lambda: HookedEnv(build=simulate, step=step), HookedEnv],
    start_method="{start_method}",
)
pool.reset()
pool.send([1, 2, 3])
say(pids(pool))
wait_for_ever()
"""
    )
    workers = run.read_line()
    gate.let_pass()
    family = run.family()
    assert {run.process.pid, *workers} < set(family)
    assert len(family) >= 1 + 3 + 4
    watched = Watched(family)
    run.process.kill()
    watched.await_end()
    assert run.family() == []


def test_the_parent_dies_while_envs_are_built(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
gate = {gate!r}
Pool([HookedEnv, lambda: HookedEnv(build=lambda env: (gate.wait(), hold_the_gil()))])
"""
    )
    gate.let_pass()
    watched = Watched(run.family())
    run.process.kill()
    watched.await_end()
    assert run.family() == []


def test_workers_of_a_pool_within_a_worker_end_with_the_owner(script: Callable[..., Script]) -> None:
    run = script(
        """
class Outer(CountingEnv):
    def __init__(self):
        super().__init__()
        self.inner = Pool(counting(2), num_workers=None)

    def reset(self, **_):
        return self.inner.reset().obs[0], {}

    def inner_pids(self):
        return pids(self.inner)

    def close(self):
        self.inner.close()

pool = Pool([Outer] * 2)
pool.reset()
say(pool.call("inner_pids"))
pool.close()
pool = Pool([Outer] * 2)
say(pool.call("inner_pids"))
wait_for_ever()
"""
    )
    run.read_line()
    inner: list[int] = sum(run.read_line(), [])
    family = run.family()
    assert set(inner) < set(family)
    watched = Watched(family)
    run.process.kill()
    watched.await_end()
    assert run.family() == []
