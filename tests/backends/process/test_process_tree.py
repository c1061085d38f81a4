"""Processes that envs start end with their worker, in whatever session they are and however the worker ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import simulators
from pairs import each
from pool_envs import counting, hooked
from programs import Script, collect, kill

from remuda import Pool, WorkerDiedError

START_METHODS = ("forkserver", "spawn", "fork")
KEY = "REMUDA_WORKER_KEY"


def running(pids: Iterable[int]) -> list[int]:
    """Returns the processes that run. A zombie does not, but another process has to reap it."""
    found = []
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def start_simulators(pool: Pool, worker: int = 0) -> list[int]:
    (pids,) = pool.apply(lambda env: list(simulators.start_all().values()), env_ids=[worker])
    assert len(running(pids)) == 4
    return list(pids)


@each(start_method=START_METHODS, end=["kill", "exit"])
def test_simulators_end_with_a_worker_that_dies(end: str, start_method: Any) -> None:
    with Pool(
        hooked(2, step=lambda *_: os._exit(3)) if end == "exit" else counting(2),
        start_method=start_method,
        num_workers=None,
    ) as p:
        p.reset()
        survivors, started = p.apply(lambda env: simulators.in_a_session(), env_ids=[0]), start_simulators(p, 1)
        if end == "kill":
            kill(p, 1)
        with pytest.raises(WorkerDiedError):
            p.step([0, 0])
        assert (running(started), running(survivors)) == ([], survivors)
    assert running(survivors) == []


@each(start_method=START_METHODS, end=["close", "terminate", "forget", "no answer"])
def test_simulators_end_with_their_pool(end: str, start_method: Any) -> None:
    pool = Pool(counting(2), start_method=start_method, num_workers=None)
    pool.reset()
    started = start_simulators(pool)
    if end == "forget":
        del pool
        collect()
    else:
        if end == "no answer":
            os.kill(pool.workers[0].pid or 0, signal.SIGSTOP)
        pool.close(timeout=0 if end == "no answer" else None, terminate=end == "terminate")
    while running(started):  # on a busy machine, a killed process may take a moment to end
        pass


@each(start_method=START_METHODS, phase=["raises", "dies"])
def test_simulators_end_when_the_start_fails(phase: str, start_method: Any, tmp_path: Any) -> None:
    def build(env: Any) -> None:
        (tmp_path / "pid").write_text(str(simulators.in_a_session()))
        os._exit(3) if phase == "dies" else env.no_such_attribute

    with pytest.raises(Exception, match="no_such_attribute|exited with code 3"):
        Pool(hooked(1, (0,), build=build), start_method=start_method, num_workers=None)
    assert running([int((tmp_path / "pid").read_text())]) == []


@pytest.mark.parametrize("dies", ["worker", "owner"])
def test_processes_of_a_pool_within_a_worker_end(dies: str, script: Callable[..., Script]) -> None:
    """The inner workers are stopped, so that they cannot end their own processes."""
    run = script(
        f"DIES = {dies!r}"
        """
import simulators

def nest(env):
    env.inner = Pool(counting(2), num_workers=None)
    started = env.inner.apply(lambda env: simulators.in_a_session())
    for pid in pids(env.inner):
        os.kill(pid, signal.SIGSTOP)
    return pids(env.inner) + started

pool = Pool(counting(1))
pool.reset()
say(pool.apply(nest)[0])
sys.stdin.readline() if DIES == "owner" else os.kill(pids(pool)[0], signal.SIGKILL)
try:
    pool.step([0])
except WorkerDiedError:
    say("of the death")
sys.stdin.readline()
"""
    )
    if dies == "worker":
        run.await_end_of_processes(then="of the death")
    else:
        assert set(run.read_line()) < set(run.family())
        run.kill()


def test_each_worker_has_its_own_key(start_method: Any) -> None:
    with Pool(counting(3), start_method=start_method, num_workers=None) as pool:
        keys = pool.apply(lambda env: os.environ[KEY])
        shown = pool.apply(lambda env: Path("/proc/self/environ").read_text().split("\0"))
    assert len(set(keys)) == 3
    assert KEY not in os.environ
    for key, variables in zip(keys, shown, strict=True):
        assert [v for v in variables if v.startswith(KEY)] == [f"{KEY}={key}"]
