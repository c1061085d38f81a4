"""The watcher ends the workers and their processes when the owner ends, even if all other processes are stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import Script, Watched, end_process

START_METHODS = ("forkserver", "fork")  # `test_start_methods.py` has all

STARTED = """
import simulators
pool = Pool(counting(2), start_method=METHOD)
pool.reset()
say([pids(pool), sum(pool.apply(lambda env: list(simulators.start_all().values())), [])])
sys.stdin.readline()
"""


def with_simulators(script: Callable[..., Script], start_method: str, then: str = "") -> tuple[Script, Any, Any]:
    """Returns a program, the pids of its two workers, and those of the eight simulators that the workers started."""
    run = script(f"METHOD = {start_method!r}" + STARTED + then)
    workers, simulators = run.read_line()
    assert (len(workers), len(simulators)) == (2, 8)
    return run, workers, simulators


def watcher_of(run: Script) -> int:
    (pid,) = (pid for pid in run.family() if Path(f"/proc/{pid}/comm").read_text().strip() == "remuda-watcher")
    return pid


@pytest.mark.parametrize("start_method", START_METHODS)
def test_the_owner_dies_before_it_detects_the_deaths_of_its_workers(
    start_method: str, script: Callable[..., Script]
) -> None:
    run, workers, _ = with_simulators(script, start_method)
    dead = Watched(workers)
    run.process.send_signal(signal.SIGSTOP)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    dead.await_end()
    run.kill()


def stop_all_and_kill(run: Script) -> None:
    for pid in set(run.family()) - {watcher_of(run)}:
        os.kill(pid, signal.SIGSTOP)
    run.kill()


def test_the_watcher_ends_stopped_processes(start_method: str, script: Callable[..., Script]) -> None:
    run, *_ = with_simulators(script, start_method)
    stop_all_and_kill(run)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_end_when_the_owner_executes_another_program(start_method: str, script: Callable[..., Script]) -> None:
    run, workers, simulators = with_simulators(script, start_method, "os.execvp('cat', ['cat'])")
    left = Watched([*workers, *simulators])
    run.write_line()
    left.await_end()
    assert run.process.poll() is None
    run.await_end()


def test_workers_end_although_a_forked_copy_of_the_owner_lives(script: Callable[..., Script]) -> None:
    """The copy holds all descriptors of the owner."""
    run, workers, simulators = with_simulators(
        script, "forkserver", "pid = os.fork() or signal.pause()\nsay(pid)\nsys.stdin.readline()\n"
    )
    run.write_line()
    copy = run.read_line()
    left = Watched([*workers, *simulators])
    run.process.kill()
    left.await_end()
    os.kill(copy, signal.SIGKILL)


def test_a_killed_watcher_is_replaced_by_the_next_pool(script: Callable[..., Script]) -> None:
    run, *_ = with_simulators(
        script, "fork", "other = Pool(counting(1), start_method='fork')\nsay('made')\nsys.stdin.readline()\n"
    )
    before = watcher_of(run)
    end_process(before)
    run.write_line()
    assert run.read_line() == "made"
    assert watcher_of(run) != before
    stop_all_and_kill(run)


def test_the_watcher_ends_with_its_program(script: Callable[..., Script]) -> None:
    run = script("with Pool(counting(1)) as pool:\n    pool.reset()\nsay('closed')\nsys.stdin.readline()\n")
    assert run.read_line() == "closed"
    watched = Watched([watcher_of(run)])
    run.write_line()
    assert run.await_end() == (0, "", "")
    watched.await_end()
