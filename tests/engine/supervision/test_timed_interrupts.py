"""Interrupts by a real timer: at random instants of `Pool(...)` and `close`, and while large messages are sent.

No call hangs, and nothing is left. A large message is sent completely or not at all, and no answer is lost.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from drawn import MINUTES, SEED
from interrupting import Interrupt
from pool_envs import begun, hooked
from programs import Script, await_sleep, pids_of

from remuda import Pool

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


def test_each_ctrl_c_interrupts_a_start_that_does_not_end(script: Callable[..., Script]) -> None:
    """The thread that starts the workers is stuck, so the threads that end the pool wait for it."""
    run = script(
        """
from remuda._backends.process.backend import ProcessBackend

def hang(*_):
    say("stuck")
    wait_for_ever()

def interrupt(*_):
    say("interrupted")
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
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


# -- messages too large for shared memory ----------------------------------------------------------------


LETTERS = 400_000
ROUNDS = range(0, 60, 1 if MINUTES else 3)


@pytest.fixture(autouse=True)
def _alarm_interrupts() -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


def disturbed(microseconds: int, act: Callable[[], Any]) -> Any:
    """Calls `act` and interrupts it after so many microseconds. If the interrupt ends the call, calls `act` again."""
    result = None
    try:
        signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
        result = act()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        pass
    return act() if result is None else result


def receive(pool: Pool) -> Any:
    """Receives the batch. Returns None if an interrupt lost the batch between the pool and the caller."""
    return pool.recv() if pool.pending else None


class Reader(gymnasium.Env[Any, Any]):
    """An env with texts as actions. The reward is the length of the text, and the info repeats its first letter."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Text(LETTERS, charset="abc")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: str) -> Any:
        return np.zeros(1, np.float32), float(len(action)), False, False, {"text": action[0] * LETTERS}


@pytest.mark.parametrize("faults", ["raise", "restart", "resume"])
def test_a_large_action_is_sent_whole_or_not_at_all(faults: Any) -> None:
    with begun([Reader] * 2, num_workers=2, faults=faults) as pool:
        before = pids_of(pool)
        for n in ROUNDS:
            actions = ["abc"[n % 3] * LETTERS, "c" * (n + 1)]
            disturbed(1 + n * 37, lambda: pool.pending or pool.send(actions))  # noqa: B023 - called at once
            batch = pool.recv()
            assert batch.rewards.tolist() == [LETTERS, n + 1]
            assert [info["text"] for info in batch.infos] == ["abc"[n % 3] * LETTERS, "c" * LETTERS]
        assert pids_of(pool) == before


def test_a_large_answer_is_received_whole() -> None:
    big = lambda env, action: (env.observe(), 1.0, False, False, {"text": str(action) * 100_000})  # noqa: E731
    with begun(hooked(2, which=range(2), step=big), num_workers=2) as pool:
        before = pids_of(pool)
        for n in ROUNDS:
            pool.send([n % 10] * 2)
            batch = disturbed(1 + n * 23, lambda: receive(pool))
            if batch is not None:
                assert [info["text"] for info in batch.infos] == [str(n % 10) * 100_000] * 2
        assert pids_of(pool) == before


def test_a_large_answer_to_a_call_is_not_lost() -> None:
    with Pool(hooked(1), object_bytes=4096) as pool:
        for n in ROUNDS:
            call = pool.call_async("echo", bytes([n]) * 100_000)
            assert disturbed(1 + n * 23, call.result) == [((bytes([n]) * 100_000,), {})]
