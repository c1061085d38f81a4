"""Forked children: locks that threads of the parent held are free there, and children of envs end like processes."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pool_envs import HookedEnv, counting
from programs import collect
from vector_envs import PlainVector

from remuda import Pool
from remuda._backends.forkserver import client
from remuda._backends.process import watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker processes")


def in_child(work: Callable[[], object]) -> int:
    """Runs `work` in a forked child and returns its exit code, which is 0 if `work` does not raise."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_a_forked_child_can_make_a_pool_while_its_parent_starts_one(start_method: Any) -> None:
    def make() -> None:
        with Pool(counting(1), start_method=start_method, num_workers=None) as pool:
            assert pool.reset().obs.shape == (1, 4)
        Pool(counting(1), start_method=start_method, num_workers=None)
        collect()  # waits for a thread that ends the forgotten pool

    Pool(counting(1), num_workers=None).close()  # starts what the child must not use
    locks = watcher._lock, client._servers_lock
    with ThreadPoolExecutor(1) as other_thread:
        for lock in locks:
            other_thread.submit(lock.acquire).result()
        try:
            assert in_child(make) == 0
        finally:
            for lock in locks:
                other_thread.submit(lock.release).result()


def fail() -> None:
    raise LookupError("a child fails")


LEAVE: list[tuple[Callable[[], object], int]] = [
    (lambda: print("a child returns", end=""), 0),
    (lambda: sys.exit(), 0),
    (lambda: sys.exit(7), 7),
    (lambda: sys.exit("a child gives up"), 1),
    (fail, 1),
]


def forking(log: Path, phase: str) -> Callable[..., None]:
    """Returns a hook that forks children, which leave it in different ways, and logs their exit codes."""

    def hook(*_: Any) -> None:
        codes = []
        for leave, _code in LEAVE:
            if (pid := os.fork()) == 0:
                leave()
                return
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv("/missing", ["missing"])
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(terminal)
        with log.open("a") as file:
            print(phase, *codes, file=file)

    return hook


@pytest.mark.parametrize("kind", ["process", "thread", "serial", "vector"])
def test_a_child_that_comes_back_from_an_env_ends(kind: str, tmp_path: Path) -> None:
    """Otherwise the child would run the worker, too."""
    log = tmp_path / "log"
    hooks = {phase: forking(log, phase) for phase in ("build", "reset", "step", "call", "close")}
    if kind == "vector":
        pool = Pool([lambda: PlainVector(2, **hooks)], vector_size=2, backend="serial")
    else:
        options: Any = {"worker_output": "capture"} if kind == "process" else {}
        pool = Pool([lambda: HookedEnv(**hooks)], backend=kind, **options)  # type: ignore[arg-type]
    with pool:
        pool.reset()
        assert pool.step([5] * pool.num_envs).rewards[0] == 5
        pool.call("poke")
        assert pool.step([6] * pool.num_envs).rewards[0] == 6
    codes = " ".join(str(code) for _, code in LEAVE)
    phases = ["build", "reset", "step", "call", "step", "close"]
    assert log.read_text().splitlines() == [f"{phase} {codes} 1" for phase in phases]
    if kind == "process":
        output = pool.workers[0].output()
        texts = "a child returns", "a child gives up\n", "LookupError: a child fails\n"
        assert [output.count(text) for text in texts] == [len(phases)] * 3
