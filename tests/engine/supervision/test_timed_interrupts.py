"""Interrupts by a real timer at random instants of `Pool(...)` and `close`: no hang, and nothing is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawn import MINUTES, SEED
from pool_envs import Gate
from programs import Script, await_sleep

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.watchdog(600 + 600 * MINUTES),
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
before, interrupts = holdings(), 0
for n in range(POOLS):
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
say(interrupts > POOLS / 10)
"""


@pytest.mark.parametrize("kind", POOLS)
def test_interrupts_at_random_instants_leave_nothing(kind: str, script: Callable[..., Script]) -> None:
    options = {"start_method" if "fork" in kind else "backend": kind}
    pools = round(POOLS[kind] * (1 + MINUTES))
    run = script(f"OPTIONS, POOLS, SEED = {options!r}, {pools}, {SEED}\n{TIMED}", "-W", "ignore")
    assert run.read_line() is True
    assert run.await_end()[0] == 0


HANDLER = """
def interrupt(*_):
    say("interrupted")
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
"""


@pytest.mark.parametrize("options", [{"backend": "thread"}, {"start_method": "fork"}, {"start_method": "forkserver"}])
def test_ctrl_c_ends_a_start_with_a_factory_that_hangs(
    options: dict[str, Any], script: Callable[..., Script], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    run = script(
        HANDLER
        + f"""
def hang(env):
    {gate!r}.wait()

for _ in range(10):
    try:
        Pool(hooked(2, build=hang), num_workers=2, **{options!r})
    except KeyboardInterrupt:
        say("over")
""",
        "-W",
        "ignore",
    )
    for _ in range(10):
        gate.await_arrival()
        os.kill(run.process.pid, signal.SIGINT)
        assert run.read_line() == "interrupted"
        assert run.read_line() == "over"
    assert run.await_end()[0] == 0


def test_each_ctrl_c_interrupts_a_start_that_does_not_end(script: Callable[..., Script]) -> None:
    """The thread that starts the workers is stuck, so the threads that end the pool wait for it."""
    run = script(
        HANDLER
        + """
from remuda._backends.process.backend import ProcessBackend

def hang(*_):
    say("stuck")
    wait_for_ever()

ProcessBackend._launch = hang
try:
    Pool(counting(2), num_workers=2)
except KeyboardInterrupt:
    say("over")
for _ in range(10):
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
"""
    )
    assert run.read_line() == "stuck"
    said, interrupts = list[str](), 0
    while "over" not in said:
        await_sleep(run.process.pid)
        os.kill(run.process.pid, signal.SIGINT)
        interrupts += 1
        said.append(run.read_line())
        assert said[-1] == "interrupted"
        if interrupts == 4:  # the start, and the end: each of the two waits for its thread until a second interrupt
            said.append(run.read_line())
    for _ in range(10):
        await_sleep(run.process.pid)
        os.kill(run.process.pid, signal.SIGINT)
        assert run.read_line() == "interrupted"
    assert run.await_end() == (0, "", "")
