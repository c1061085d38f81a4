"""Orders to reset an env, with their attempts and limits of time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class ResetOrder:
    """One reset.

    Attributes:
        param: Keywords of the env's ``reset``; ``None``: no keywords.
        seed: Arguments of the env's ``seed``; ``None``: it is not called.
        resets: Number of resets that the env was sent since it was given that seed, or launched. With 0 it is seeded
            first. With more, only an env that was rebuilt since then is seeded, as the env that it replaces was.
        attempts: Number of attempts, at least 1.
        retry_type: "reset" the same env again, or "renew" it first.
        pause: Seconds between two attempts.
        timeout: Seconds for one attempt; ``None``: no limit.
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
        """Whether all episodes have the same seed, as evaluators request."""
        return self.seed is not None and self.seed[1:] == (False,)

    @property
    def pool_seed(self) -> int | None:
        """The seed of this reset for the pool, which reports it and derives others from it."""
        if self.seed is None or not (self.resets == 0 or self.repeats_episodes):
            return None
        seed = self.seed[0]
        return int(seed) if isinstance(seed, (int, np.integer)) and seed >= 0 else None

    def with_seed(self, seed: int | None) -> ResetOrder:
        """Returns the order with the seed that the pool derived for an env that was rebuilt; None: it is unchanged."""
        if seed is None or self.seed is None or self.repeats_episodes:
            return self
        return replace(self, seed=(seed, *self.seed[1:]))

    @property
    def budget(self) -> float | None:
        """Seconds for all attempts, and one more; ``None``: no limit."""
        return None if self.timeout is None else (self.timeout + self.pause) * self.attempts + 1.0


@contextmanager
def time_limit(seconds: float | None, name: str) -> Iterator[None]:
    """Interrupts code that runs longer. The traceback shows where it was.

    Neither native code nor a thread other than the main one is interrupted: the pool's deadlines are for these.

    Raises:
        TimeoutError: The code ran longer.
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
