"""Messages too large for shared memory, with signals that arrive while they are sent and received.

The handler raises, as that of Ctrl-C does. A message is then sent completely or not at all, and no answer is lost.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from drawn import MINUTES
from interrupting import Interrupt
from pool_envs import begun, hooked
from programs import pids_of

from remuda import Pool

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no interval timers"),
    # The handler may raise just as a file in /proc is opened. Python then closes the file later, with a warning.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

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
