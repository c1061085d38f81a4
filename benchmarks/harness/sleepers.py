"""Envs that sleep instead of working. They need no core, so they lose time only while they wait for a command.

An env takes its sleeps from a deck of durations, which its own seeded generator shuffles each time the deck is used up.
So a hundred steps with a deck of a hundred always take the same time, and short turns measure as well as long ones.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import sys
import threading
import time
from dataclasses import dataclass
from statistics import NormalDist, mean
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda._bench.contenders import Contender, PlainLoop
from remuda._bench.workloads import Workload

PR_SET_TIMERSLACK = 29
_thread = threading.local()

GOLDEN = (5**0.5 - 1) / 2
"""The golden ratio. The fractional parts of its multiples by 1, 2, 3, ... are spread evenly, for any number of them."""


@dataclass(frozen=True)
class Sleeps:
    """The durations of an env's sleeps in steps and resets, in seconds."""

    name: str
    steps: tuple[float, ...]
    """The deck of durations for steps."""
    reset: float = 0.0
    episode_steps: int | None = None
    """None: episodes never end."""

    @property
    def seconds_a_step(self) -> float:
        """The mean seconds of a step, with the step's share of the reset."""
        return mean(self.steps) + (self.reset / self.episode_steps if self.episode_steps else 0.0)

    @property
    def period(self) -> int:
        """The number of consecutive steps, resets included, that always take equally long."""
        return len(self.steps) if self.episode_steps is None else self.episode_steps + 1

    def workload(self) -> Workload:
        return Workload(self.name, functools.partial(SleepingEnv, self))


class SleepingEnv(gymnasium.Env[Any, Any]):
    """An env that sleeps in each step and reset, and gives a reward of 1 for each step.

    A reset with a seed shortens the first episode by a share that differs from seed to seed, and lengthens the reset.
    So the episodes of a pool's envs end one by one. If each env starts as soon as it can, the ends are spread evenly
    over the time of an episode and a reset. If the envs step together, they are spread over the steps of an episode.
    """

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, sleeps: Sleeps) -> None:
        self.sleeps = sleeps
        self._obs = np.zeros(4, np.float32)
        self._left: list[float] = []
        self._steps = 0
        self._share = 0.0
        """The share of an episode by which the first episode is shortened. 0.0 in later episodes."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._left = []
            self._share = (seed + 1) * GOLDEN % 1.0
        sleep(self.sleeps.reset * (2.0 - self._share if self._share else 1.0))
        self._steps = math.floor(self._share * (self.sleeps.episode_steps or 0))
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._left:
            self._left = self.np_random.permutation(self.sleeps.steps).tolist()
        sleep(self._left.pop())
        self._steps += 1
        is_over = self._steps == self.sleeps.episode_steps
        if is_over:
            self._share = 0.0
        return self._obs, 1.0, False, is_over, {}


def sleep(seconds: float) -> None:
    """Sleeps and wakes on time: sets the thread's timer slack, because Linux otherwise delays timers by up to 50 us."""
    if not getattr(_thread, "is_punctual", False):
        _thread.is_punctual = True
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    time.sleep(seconds)


class SleepLoop(PlainLoop):
    """A plain loop over a sleeping env. It makes a multiple of `Sleeps.period` at a time, and does not count resets."""

    env: Any

    def prepare(self, space: Any, batch: Any) -> list[Any]:
        actions, period = super().prepare(space, batch), self.env.sleeps.period
        return list(itertools.islice(itertools.cycle(actions), -(-len(actions) // period) * period))

    def step(self, actions: Any) -> int:
        steps = 0
        for action in actions:
            if self.is_done:
                self.env.reset()
                self.is_done = False
            else:
                _, _, _, self.is_done, _ = self.env.step(action)
                steps += 1
        return steps


def without_resets(kind: type[Contender]) -> type[Contender]:
    """Returns a contender class like the given one, which does not count resets.

    For envs whose steps give a reward of 1. A reset gives none.
    """

    def step(self: Contender, actions: Any) -> int:
        kind.step(self, actions)
        return int(np.sum(self.rewards))

    return type(kind.__name__, (kind,), {"step": step})


def lognormal_quantiles(count: int, average: float, sigma: float = 0.5) -> tuple[float, ...]:
    """Returns ``count`` equally likely values of a lognormal distribution. ``sigma``: the deviation of the logs."""
    exponents = NormalDist(0.0, sigma)
    values = [math.exp(exponents.inv_cdf((index + 0.5) / count)) for index in range(count)]
    return tuple(value * average / mean(values) for value in values)


SLEEPS = {
    "lognormal": Sleeps("2 ms a step, lognormal; 20 ms in 1 % of them", (*lognormal_quantiles(99, 2e-3), 20e-3)),
    "resets": Sleeps("1 ms a step; 200 ms a reset, after 100 steps", (1e-3,) * 100, reset=0.2, episode_steps=100),
}
