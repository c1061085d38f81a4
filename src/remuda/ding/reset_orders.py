"""The order to reset an env, which its worker executes: seed, number of attempts, and time limits."""

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
        param: The keywords of the env's ``reset``; ``None``: no keywords.
        seed: The arguments of the env's ``seed``; ``None``: it is not called.
        resets: The number of resets sent to the env since that seed, or since the launch. With 0 the env is seeded
            first. With more, only an env that was rebuilt since then is seeded, like the env that it replaces.
        attempts: The number of attempts, at least 1.
        retry_type: "reset" the same env again, or "renew" it first.
        pause: The seconds between two attempts.
        limit: The seconds for one attempt (``None``: no limit), and the option that sets them.
    """

    param: dict[str, Any] | None
    seed: tuple[Any, ...] | None
    resets: int
    attempts: int
    retry_type: Literal["reset", "renew"]
    pause: float
    limit: tuple[float | None, str]

    @property
    def repeats_episodes(self) -> bool:
        """Whether all episodes have the same seed (``dynamic_seed=False``), as evaluators request."""
        return self.seed is not None and self.seed[1:] == (False,)

    @property
    def pool_seed(self) -> int | None:
        """The seed of this reset, which the pool reports, and uses for seeds of rebuilt envs; None: no seed."""
        if self.seed is None or not (self.resets == 0 or self.repeats_episodes):
            return None
        seed = self.seed[0]
        return int(seed) if isinstance(seed, (int, np.integer)) and seed >= 0 else None

    def with_seed(self, seed: int | None) -> ResetOrder:
        """Returns the order with the seed that the pool derived for a rebuilt env. None leaves the order unchanged."""
        if seed is None or self.seed is None or self.repeats_episodes:
            return self
        return replace(self, seed=(seed, *self.seed[1:]))

    @property
    def budget(self) -> float | None:
        """The pool's time limit for all attempts together, in seconds; ``None``: no limit."""
        timeout, _ = self.limit
        return None if timeout is None else (timeout + self.pause) * self.attempts + 1.0


@contextmanager
def time_limit(seconds: float | None, name: str) -> Iterator[None]:
    """A context manager that interrupts Python code after some seconds. The traceback shows the interrupted code.

    Native code, and threads other than the main one, are not interrupted; the pool's deadlines apply to them.

    Raises:
        TimeoutError: The code ran longer.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError(f"expected an answer of the env within {name}={seconds} s, got none: give it more time")

    before = signal.getsignal(signal.SIGALRM)
    try:  # nested `try` blocks, because the interrupt may come between any two of these lines
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, min(seconds, threading.TIMEOUT_MAX))
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        finally:
            signal.signal(signal.SIGALRM, before)
