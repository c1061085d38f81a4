"""Whatever ends the owner, its workers and all that they have started end too, also if nobody of them can look."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import Script, Watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

START_METHODS = ("forkserver", "spawn", "fork")

STARTED = """
import simulators
pool = Pool(counting(2), start_method=METHOD)
pool.reset()
say([pids(pool), sum(pool.apply(lambda env: list(simulators.start_all().values())), [])])
sys.stdin.readline()
"""


def with_simulators(script: Callable[..., Script], start_method: str, then: str = "") -> tuple[Script, Any, Any]:
    """A program, the pids of its two workers, and of the eight simulators that they have started."""
    run = script(f"METHOD = {start_method!r}" + STARTED + then)
    workers, simulators = run.read_line()
    assert (len(workers), len(simulators)) == (2, 8)
    return run, workers, simulators


def watcher_of(run: Script) -> int:
    (pid,) = (pid for pid in run.family() if Path(f"/proc/{pid}/comm").read_text().strip() == "remuda-watcher")
    return pid


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_die_and_the_owner_before_it_has_looked(start_method: str, script: Callable[..., Script]) -> None:
    run, workers, _ = with_simulators(script, start_method)
    family, dead = Watched(run.family()), Watched(workers)
    run.process.send_signal(signal.SIGSTOP)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    dead.await_end()
    run.process.kill()
    family.await_end()
    assert run.family() == []


@pytest.mark.parametrize("start_method", START_METHODS)
def test_all_but_the_watcher_are_stopped_and_the_owner_dies(start_method: str, script: Callable[..., Script]) -> None:
    run, *_ = with_simulators(script, start_method)
    family = Watched(run.family())
    for pid in set(family.pids) - {watcher_of(run)}:
        os.kill(pid, signal.SIGSTOP)
    run.process.kill()
    family.await_end()
    assert run.family() == []


@pytest.mark.parametrize("start_method", START_METHODS)
def test_the_owner_becomes_another_program(start_method: str, script: Callable[..., Script]) -> None:
    run, workers, simulators = with_simulators(script, start_method, "os.execvp('cat', ['cat'])")
    left = Watched([*workers, *simulators])
    run.write_line()
    left.await_end()
    assert run.process.poll() is None
    run.await_end()


def test_a_forked_copy_of_the_owner_is_no_owner(script: Callable[..., Script]) -> None:
    """It holds all descriptors that the owner had."""
    run, workers, simulators = with_simulators(
        script,
        "forkserver",
        """
pid = os.fork()
if pid == 0:
    signal.pause()
say(pid)
sys.stdin.readline()
""",
    )
    run.write_line()
    copy = run.read_line()
    left = Watched([*workers, *simulators])
    run.process.kill()
    left.await_end()
    os.kill(copy, signal.SIGKILL)


def test_a_watcher_that_was_killed_has_a_successor(script: Callable[..., Script]) -> None:
    run, *_ = with_simulators(
        script,
        "fork",
        """
other = Pool(counting(1), start_method="fork")
say("made")
sys.stdin.readline()
""",
    )
    before = watcher_of(run)
    watched = Watched([before])
    os.kill(before, signal.SIGKILL)
    watched.await_end()
    run.write_line()
    assert run.read_line() == "made"
    assert watcher_of(run) != before
    family = Watched(run.family())
    for pid in set(family.pids) - {watcher_of(run)}:
        os.kill(pid, signal.SIGSTOP)
    run.process.kill()
    family.await_end()


def test_it_ends_with_a_program_that_has_closed_its_pool(script: Callable[..., Script]) -> None:
    run = script("with Pool(counting(1)) as pool:\n    pool.reset()\nsay('closed')\nsys.stdin.readline()\n")
    assert run.read_line() == "closed"
    watched = Watched([watcher_of(run)])
    run.write_line()
    assert run.await_end() == (0, "", "")
    watched.await_end()


def test_an_interrupt_in_the_start_of_a_watcher_kills_nothing(script: Callable[..., Script]) -> None:
    """At each step of the interpreter: what the owner has is watched over by the next one, and no zombie is left."""
    run = script(
        """
from interrupting import Interrupt, interrupting
from programs import children, end_process
from reaper import who_has
from remuda._backends.process import watcher

def watchers():
    family = [pid for pid in who_has("REMUDA_TEST=" + os.environ["REMUDA_TEST"]) if pid != os.getpid()]
    return [pid for pid in family if "remuda-watcher" in Path(f"/proc/{pid}/cmdline").read_text()]

with Pool(counting(1), start_method="fork") as pool:
    pool.reset()
    workers, hits, n = children(), 0, 0
    while True:
        for pid in watchers():
            end_process(pid)
        with interrupting(n, (watcher.__file__,)) as hit:
            try:
                watcher.watch()
            except Interrupt:
                pass
        assert children() == workers, hit
        watcher.watch()
        while len(watchers()) > 1:  # one of two that were started goes
            pass
        assert pool.step([1]).reward.tolist() == [1], hit
        if not hit:
            break
        hits, n = hits + 1, n + 1
say(hits)
"""
    )
    assert run.read_line() > 50
    assert run.await_end() == (0, "", "")
