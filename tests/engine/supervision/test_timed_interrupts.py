"""Interrupts by a real timer: at random instants of `Pool(...)` and `close`, and while large messages are sent.

No call hangs, and nothing is left. A large message is sent completely or not at all.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from drawn import MINUTES, SEED
from interrupting import Interrupt
from pool_envs import TextEnv, begun
from programs import Script, pids_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.watchdog(600 + 600 * MINUTES),
    # The handler may raise just as a file in /proc is opened. Python then closes the file later, with a warning.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

POOLS = {"thread": 40, "serial": 20, "fork": 16, "forkserver": 12}

# The timer interrupts once, or again and again in short periods, in Pool(...) and what follows until it is closed.
TIMED = """
import random, time
from programs import collect, holdings

class Interrupt(BaseException):
    pass

def interrupt(_, frame):
    while frame is not None:
        if frame.f_code is run.__code__:
            raise Interrupt
        frame = frame.f_back

def run():
    pool = Pool(counting(2), num_workers=2, **OPTIONS)
    pools.append(pool)
    pool.reset()
    pool.close()

pools, drawn = [], random.Random(SEED)
signal.signal(signal.SIGALRM, interrupt)
for _ in range(2):
    begin = time.perf_counter()
    run()
    longest = 1.2 * (time.perf_counter() - begin)
pools.clear()
collect()
before, interrupts, n = holdings(), 0, 0
while n < POOLS or interrupts < POOLS / 10:  # on a busy machine, a pool may be closed before its interrupt
    n += 1
    period = drawn.uniform(1e-4, 3e-3) if n % 2 else 0
    signal.setitimer(signal.ITIMER_REAL, drawn.uniform(1e-6, longest), period)
    try:
        run()
    except Interrupt:
        interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    while pools:
        pool = pools.pop()
        if n % 3:
            pool.close()
            assert pool.closed and not any(worker.is_alive() for worker in pool.workers)
        del pool
    collect()
    while holdings() != before:  # threads that run to their end
        collect()
say("done")
"""


@pytest.mark.parametrize("kind", POOLS)
def test_interrupts_at_random_instants_leave_nothing(kind: str, script: Callable[..., Script]) -> None:
    options = {"start_method" if "fork" in kind else "backend": kind}
    pools = round(POOLS[kind] * (1 + MINUTES))
    run = script(f"OPTIONS, POOLS, SEED = {options!r}, {pools}, {SEED}\n{TIMED}", "-W", "ignore")
    assert run.read_line() == "done"
    assert run.await_end()[0] == 0


# -- messages too large for shared memory ----------------------------------------------------------------


LETTERS = 400_000


@pytest.fixture(autouse=True)
def _alarm_interrupts() -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("faults", ["raise", "restart", "resume"])
def test_a_large_action_is_sent_whole_or_not_at_all(faults: Any) -> None:
    with begun([TextEnv] * 2, num_workers=2, faults=faults) as pool:
        before = pids_of(pool)
        for n in range(0, 60, 1 if MINUTES else 3):
            actions = "abc"[n % 3] * LETTERS, "c" * (n + 1)
            with suppress(Interrupt):
                signal.setitimer(signal.ITIMER_REAL, (1 + n * 37) * 1e-6)
                pool.send(actions)
                signal.setitimer(signal.ITIMER_REAL, 0)
            if not pool.pending:
                pool.send(actions)
            assert pool.recv(order="slot").obs == actions
        assert pids_of(pool) == before
