"""Interrupts of the caller during a request to the fork server leave no descriptor and no zombie."""

from __future__ import annotations

import dis
import gc
import linecache
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest
from drawn import MINUTES
from interrupting import Interrupt, anywhere, interrupting
from pool_envs import counting
from programs import holdings, kill, zombies

import remuda
from remuda import FaultPolicy, Pool
from remuda._backends.forkserver import server_process
from remuda._backends.forkserver.client import ForkServer
from remuda._backends.process.start_methods import _ByServer

PACKAGE = Path(remuda.__file__).parent
FILES = tuple(str(PACKAGE / place) for place in ("_backends", "_wire/sealed_file.py"))
STRIDE = 83 if MINUTES else 419  # the distance of the instructions at which the test interrupts


def at_a_mark(frame: FrameType) -> bool:
    """Returns whether the frame is about to record that an exchange with the server begins or ends, or what it
    requested.
    """
    code = frame.f_code
    return code.co_name in ("_exchange", "_go_on") and code.co_code[frame.f_lasti] == dis.opmap["STORE_ATTR"]


def at_the_arrival(frame: FrameType) -> bool:
    """Returns whether the frame stores the process that the server has forked."""
    names = ("has_arrived", "poll", "_start", "_go_on", "_keep", "_take_over", "_release")
    if frame.f_code.co_name not in names:
        return False
    me = frame.f_locals.get("self")
    launching = getattr(me, "launching", me)  # of a worker
    return isinstance(launching, _ByServer) and launching._fork is not None and launching._fork.done


def await_no_zombies(pool: Pool) -> None:
    """Steps until the server has reaped all zombies. The pool does not wait for that."""
    while zombies():
        pool.step([0, 0])


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # garbage collection closes them
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # a server that has just started
@pytest.mark.parametrize(
    ("counts", "stride", "least"), [(anywhere, STRIDE, 2), (at_a_mark, 1, 6), (at_the_arrival, 1 if MINUTES else 7, 8)]
)
def test_an_interrupt_in_the_start_of_a_successor_leaves_nothing(
    counts: Callable[[FrameType], bool], stride: int, least: int
) -> None:
    with Pool(counting(2), faults=FaultPolicy("restart", backoff=0, max_restarts=10**6), log_advice=False) as pool:
        pool.reset()
        before, n, places = holdings(), 0, []
        while True:
            pid = kill(pool, 1)
            with interrupting(n, FILES, counts) as hit:
                try:
                    while pool.workers[1].pid in (pid, None):
                        pool.step([0, 0])
                except Interrupt:
                    pass
            pool.discard()
            pool.reset()
            assert pool.step([0, 0]).obs[:, 2:].tolist() == [[1, 0]] * 2, hit
            gc.collect()
            assert holdings() == before, hit
            await_no_zombies(pool)
            if not hit:
                break
            places += hit
            n += stride
    assert len(places) > least


@pytest.mark.watchdog(600 + 600 * MINUTES)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # garbage collection closes them
# the server is killed all the same
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_an_interrupt_in_the_start_of_a_server_leaves_nothing() -> None:
    before, n, places = holdings(), 0, []
    files = (server_process.__file__, subprocess.__file__)

    def starting(frame: FrameType) -> bool:
        """Excludes lines at which an interrupt makes Python's `subprocess` leak a descriptor."""
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
        if frame.f_code.co_filename == files[1] and "os.close(" in line:
            return False
        while frame is not None and frame.f_code.co_name != "start_server":
            frame = frame.f_back  # type: ignore[assignment]
        return frame is not None

    while True:
        with interrupting(n, files, starting) as hit, suppress(Interrupt):
            ForkServer(dict(os.environ)).close()
        gc.collect()
        assert holdings() == before, hit
        if not hit:
            break
        places += hit
        n += STRIDE
    assert len(places) > 2
