"""The caller is interrupted while the fork server is asked for a worker: no descriptor is left."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pool_envs import counting
from programs import holdings, kill

import remuda
from remuda import FaultPolicy, Pool

PACKAGE = Path(remuda.__file__).parent
WHERE = tuple(str(PACKAGE / place) for place in ("_backends", "_wire/parcel.py"))
STRIDE = 83  # between the steps that are hit


class Interrupt(BaseException):
    """As the handler of a signal may raise it."""


@contextmanager
def interrupting(n: int) -> Iterator[list[str]]:
    """Raises before the n-th step of the interpreter in these files, also within a line; the list tells where."""
    hit: list[str] = []
    left = n

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if hit or not frame.f_code.co_filename.startswith(WHERE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} at {frame.f_lasti}")
                raise Interrupt(hit[0])
        return trace

    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(None)


@pytest.mark.watchdog(600)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # garbage collection closes them
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # a server that has just begun
def test_an_interrupt_anywhere_in_the_start_of_a_successor_costs_no_descriptor() -> None:
    with Pool(counting(2), faults=FaultPolicy("restart", backoff=0, max_restarts=10**6), advise=False) as pool:
        pool.reset()
        before, n, places = holdings(), 0, []
        while True:
            restarts = pool.stats().restarts
            kill(pool, 1)
            with interrupting(n) as hit:
                try:
                    while pool.stats().restarts == restarts:
                        pool.step([0, 0])
                except Interrupt:
                    pass
            pool.discard()
            pool.reset()
            assert pool.step([0, 0]).obs[:, 2:].tolist() == [[1, 0]] * 2, hit
            gc.collect()
            assert holdings() == before, hit
            if not hit:
                break
            places += hit
            n += STRIDE
    assert len(places) > 10
