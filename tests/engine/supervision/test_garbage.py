"""Dropped pools that the garbage collector finds in any thread and at any line: all of their workers end."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from drawn import MINUTES
from programs import Script

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.watchdog(600 + 600 * MINUTES),
]

HEAD = """
import gc, logging
from programs import Watched, kill, step_until_restarted

def in_a_cycle(pool):
    cycle = [pool]
    cycle.append(cycle)
    return cycle

RESTART = FaultPolicy("restart", backoff=0, max_restarts=10**6)
logging.getLogger("remuda").addHandler(logging.NullHandler())
gc.disable()  # garbage is collected where the test does it
"""

# Each line collects a pool of its own, which was made before. Repeats the scenario until it reaches no other line.
EACH_LINE = """
import remuda

FOLDERS = tuple(f"{Path(remuda.__file__).parent}/{name}/" for name in ("_engine/supervision", "_backends", "_system"))
stock, seen, collected = [], set(), []

def trace(frame, event, _):
    code = frame.f_code
    if not code.co_filename.startswith(FOLDERS):
        return None
    if event == "line" and (place := (code.co_filename, frame.f_lineno)) not in seen and stock:
        seen.add(place)
        if len(seen) % STRIDE == 0:
            collected.append(place)
            stock.pop()
            gc.collect()
    return trace

def scenario():
    with begun(counting(2), num_workers=2, faults=RESTART) as pool:
        pid = kill(pool, 1)
        step_until_restarted(pool, 1, pid)
        assert pool.workers[0].exitcode is None

gc.collect()
gc.freeze()
before = -1
while before < len(collected):
    before, watched = len(collected), []
    for n in range(6):
        pool = begun(counting(2), num_workers=2, faults=RESTART, backend=("process", "thread", "serial")[n % 3])
        watched.append(Watched(pids(pool) if n % 3 == 0 else []))
        stock.append(in_a_cycle(pool))
        del pool
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        scenario()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    stock.clear()
    gc.collect()
    for one in watched:
        one.await_end()
say(len(collected) > 10)
"""


def test_garbage_is_collected_at_any_line(script: Callable[..., Script]) -> None:
    run = script(f"STRIDE = {1 if MINUTES else 23}\n{HEAD}{EACH_LINE}")
    assert run.read_line() is True
    assert run.await_end() == (0, "", "")


def test_garbage_in_the_thread_that_starts_a_successor_of_the_same_pool(script: Callable[..., Script]) -> None:
    run = script(
        HEAD
        + """
is_starting, is_dropped = threading.Event(), threading.Event()

def collect_at_the_start(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_launch" and threading.current_thread().name == "remuda-start-1":
        is_starting.set()
        is_dropped.wait()
        gc.collect()

threading.setprofile(collect_at_the_start)
pool = Pool(counting(3), num_workers=3, faults=RESTART)
watched = Watched(pids(pool))
pool.reset()
kill(pool, 1)
is_starting.wait()
cycle = in_a_cycle(pool)
del pool, cycle
is_dropped.set()
watched.await_end()
"""
    )
    assert run.await_end() == (0, "", "")


def test_garbage_in_a_log_handler_that_another_thread_waits_for(script: Callable[..., Script]) -> None:
    """A worker of the pool has died, which another thread logs with the same handler."""
    run = script(
        HEAD
        + """
class Handler(logging.Handler):
    def acquire(self):
        if threading.current_thread() is not threading.main_thread():
            other_waits.set()
        super().acquire()

    def emit(self, record):
        if record.getMessage() == "collect":
            pool = pools.pop()
            kill(pool, 1)
            other_waits.wait()
            cycle = in_a_cycle(pool)
            del pool, cycle
            gc.collect()

other_waits = threading.Event()
for name in ("remuda", "program"):
    logging.getLogger(name).addHandler(handler := Handler() if name == "remuda" else handler)
pools = [Pool(counting(2), num_workers=2, faults=RESTART)]
watched = Watched(pids(pools[0]))
pools[0].reset()
logging.getLogger("program").warning("collect")
watched.await_end()
"""
    )
    assert run.await_end() == (0, "", "")
