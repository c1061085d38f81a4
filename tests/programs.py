"""Processes seen from outside: waiting for their end, running programs, and finding what they leave behind.

`conftest.py` imports the fixtures `script` and `start_method` from here.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reaper import processes_with

from remuda import Pool
from remuda._system import finalizers


class Watched:
    """Processes that can be awaited, even if they are no children of this process."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = list(pids)
        self._fds = []
        for pid in pids:
            with suppress(ProcessLookupError):  # it has already ended
                self._fds.append(os.pidfd_open(pid))

    def await_end(self) -> None:
        for fd in self._fds:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            poller.poll()
        self.release()

    def release(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def pids_of(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool.workers if worker.pid is not None]


def kill(pool: Pool, worker: int, number: int = signal.SIGKILL) -> int:
    """Kills a worker and waits until it is dead. Returns its pid."""
    pid = pids_of(pool)[worker]
    end_process(pid, number)
    return pid


def step_until_restarted(pool: Pool, worker: int, pid: int) -> None:
    """Steps until the worker has a successor and every env returns its action as the reward."""
    actions = np.ones(pool.num_envs, np.int64)
    while pool.step(actions).rewards.sum() < pool.num_envs or pool.workers[worker].pid in (pid, None):
        pass


def end_process(pid: int, number: int = signal.SIGKILL) -> None:
    """Kills a process and waits until it is dead. Its parent keeps the exit code."""
    watched = Watched([pid])
    os.kill(pid, number)
    watched.await_end()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops a process, and continues it at the end, if it still exists."""
    os.kill(pid, signal.SIGSTOP)
    while _state(Path(f"/proc/{pid}")) != "T":
        pass
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was replaced
            os.kill(pid, signal.SIGCONT)


class Script:
    """A program and all its descendants, which inherit a mark in their environment."""

    def __init__(self, directory: Path, code: str, *options: str, **variables: str) -> None:
        self.mark = f"REMUDA_TEST={directory}"
        path = directory / "script.py"
        path.write_text(f"from script_head import *\n{code}")
        (directory / "script_head.py").write_text(HEAD)
        environment = {**os.environ, **variables, "REMUDA_TEST": str(directory)}
        environment["PYTHONPATH"] = os.pathsep.join([str(directory), str(Path(__file__).parent), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, *options, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # its own process group, as a shell gives to a command
        )

    def read_line(self) -> Any:
        """Returns the next value that the program wrote with `say`."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.process.communicate()[1], self.process.returncode)
        return json.loads(line)

    def write_line(self) -> None:
        """Sends a line to a program that waits for one."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def await_end_of_processes(self, then: str) -> tuple[int, str, str]:
        """Reads pids and the value `then` from the program, and waits until the processes end. Then as `await_end`."""
        watched = Watched(self.read_line())
        assert self.read_line() == then
        watched.await_end()
        self.write_line()
        return self.await_end()

    def family(self) -> list[int]:
        """Returns the pids of the program and its descendants that run."""
        return processes_with(self.mark)

    def kill(self) -> None:
        """Kills the program, and waits until all its descendants have ended, too."""
        family = Watched(self.family())
        self.process.kill()
        family.await_end()
        assert self.family() == []

    def await_end(self) -> tuple[int, str, str]:
        """Waits for the program and all its descendants. Returns its exit code and output.

        A process that survives keeps the pipes open or this call waiting, so that the watchdog ends the test.
        """
        out, err = self.process.communicate()
        Watched(self.family()).await_end()
        return self.process.returncode, out, err


HEAD = '''
import ctypes, functools, json, os, re, signal, subprocess, sys, threading
import gymnasium, numpy as np
from pathlib import Path
from accidents import hold_the_gil, wait_for_ever
from pool_envs import *
from remuda import *

Pool = functools.partial(Pool, num_workers=None)  # each env has a worker, unless the program says otherwise

def say(value):
    sys.stdout.flush()
    os.write(1, json.dumps(value).encode() + b"\\n")  # at once: workers say something at the same time

def pids(pool):
    return [worker.pid for worker in pool.workers]

def burn_the_cpu(*_):
    """In native code, for as good as ever, with the GIL."""
    re.match("(a+)+$", "a" * 100 + "b")
'''


@pytest.fixture(params=["forkserver", "spawn", "fork"])
def start_method(request: pytest.FixtureRequest) -> Any:
    """Runs a test with each start method, unless the test has other parameters."""
    return request.param


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    started = []

    def start(code: str, *options: str, **variables: str) -> Script:
        started.append(Script(tmp_path, code, *options, **variables))
        return started[-1]

    yield start
    for one in started:
        family = Watched(one.family())
        for pid in family.pids:  # only if a test has failed
            os.kill(pid, signal.SIGKILL)
        one.process.communicate()
        family.await_end()
    if started and os.getpid() == 1:
        reap_orphans()


def reap_orphans() -> None:
    """Reaps orphans, which become children of this process if it is process 1."""
    with suppress(ChildProcessError):  # no child is left
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is not None:
            pass


def collect() -> None:
    """Collects garbage, and waits until the pools in it have ended."""
    gc.collect()
    assert finalizers.await_all(seconds=1e6)  # until the watchdog ends the test


# -- resources and sleep -----------------------------------------------------------------------------------


def holdings() -> dict[str, Any]:
    """Returns the resources of this process that a pool could leave behind."""
    maps = Path("/proc/self/maps").read_text()
    return {
        # without numbers such as that of a socket
        "descriptors": Counter(re.sub(r"\d+", "", link) for _, link in _descriptors("self")),
        "arenas": maps.count("memfd:remuda"),
        "threads": threading.active_count(),
        "children": len(children()),
    }


def held_by(pid: int | str, of: str) -> dict[str, str]:
    """Returns the paths in /proc of the descriptors that a process has of files with this name, and the files."""
    found = {str(path): link for path, link in _descriptors(pid)}
    return {path: link for path, link in found.items() if of in link}


def _descriptors(pid: int | str) -> Iterator[tuple[Path, str]]:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the descriptor that lists the directory
            yield path, os.readlink(path)


def children(parent: int | str = "self") -> set[int]:
    """Returns the children of a process. Those of process 1 include orphans."""
    found = set[int]()
    tasks = f"/proc/{parent}/task"
    with suppress(OSError):  # the process has just ended
        for task in os.listdir(tasks):
            with suppress(OSError), open(f"{tasks}/{task}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    return found


def zombies() -> set[int]:
    """Returns children of this process's children that have ended and were not reaped."""
    found = set[int]()
    for pid in (pid for child in children() for pid in children(child)):
        with suppress(OSError):  # the process is gone
            if _state(Path(f"/proc/{pid}")) == "Z":
                found.add(pid)
    return found


def await_sleep(pid: int) -> None:
    """Waits until all threads of a process sleep for longer than a wake-up takes.

    A pool that waits wakes up every 10 ms.
    """
    calm = 0
    while calm < 100:
        try:
            states = {_state(path) for path in Path(f"/proc/{pid}/task").iterdir()}
        except (FileNotFoundError, ProcessLookupError):  # a thread has ended
            states = set()
        calm = calm + 1 if states == {"S"} else 0


def _state(task: Path) -> str:
    """Returns the state of a thread or process."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
