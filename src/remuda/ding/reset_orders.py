"""What a reset is told, and how it is tried again: in the worker, where the env is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class ResetOrder:
    """One reset.

    Attributes:
        param: keywords of the env's ``reset``; ``None``: there are none.
        seed: arguments of the env's ``seed``; ``None``: it is not called.
        resets: how many resets the env was ordered since it was given that seed, or launched. With 0 it is seeded
            first; with more only an env that was built since then is, for it must know what the one before was told.
        attempts: how often to try, at least once.
        retry_type: "reset" the same env again, or "renew" it first.
        pause: seconds between two attempts.
        timeout: seconds for one attempt; ``None``: no limit.
    """

    param: dict[str, Any] | None
    seed: tuple[Any, ...] | None
    resets: int
    attempts: int
    retry_type: Literal["reset", "renew"]
    pause: float
    timeout: float | None

    @property
    def repeats_episodes(self) -> bool:
        """Whether each episode is to be that of the seed, as evaluators have it."""
        return self.seed is not None and self.seed[1:] == (False,)

    def with_seed(self, seed: int | None) -> ResetOrder:
        """The same with the seed that the engine derives for an env that was built anew; None: it has not."""
        if seed is None or self.seed is None or self.repeats_episodes:
            return self
        return replace(self, seed=(seed, *self.seed[1:]))

    @property
    def budget(self) -> float | None:
        """Seconds after which all attempts are over, with one to spare; ``None``: never."""
        return None if self.timeout is None else (self.timeout + self.pause) * self.attempts + 1.0


@contextmanager
def time_limit(seconds: float | None, name: str) -> Iterator[None]:
    """Interrupt what runs longer, with a traceback of where it was.

    Native code is not interrupted, nor is a thread other than the main one: the pool's deadlines are for these.

    Raises:
        TimeoutError: it ran longer.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError(f"expected an answer of the env within {name}={seconds} s, got none: give it more time")

    before = signal.getsignal(signal.SIGALRM)
    try:  # an interrupt may come between any two of these
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        finally:
            signal.signal(signal.SIGALRM, before)
