"""Measures the cost of an env by stepping it with random actions briefly. The env cannot be used afterwards."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from remuda._wire.failures import text_of
from remuda._worker.env_report import core_of, is_vector_env

try:
    import resource
except ImportError:
    _RUSAGE_THREAD = None
else:
    _RUSAGE_THREAD = getattr(resource, "RUSAGE_THREAD", None)

_looks = itertools.count()
_this_thread = threading.local()

_SECONDS = 0.03
_LEAST_STEPS = 10
_LOOKS_EVERY = 1e-3  # the least seconds between two readings of the clocks. (A reading takes microseconds.)
_MOST_SECONDS = 0.5  # the most seconds of a measurement. With slow steps it may then have fewer than `_LEAST_STEPS`.
_DRAWN = 64  # the number of sampled actions, which are repeated in a cycle.
_EPISODE_STEPS = 1000  # the assumed steps of an episode if none ended, because most envs have this limit


@dataclass(frozen=True)
class StepCost:
    """The mean cost of one step, if the env is alone in a process.

    Attributes:
        wall: Seconds of wall time.
        cpu: Seconds of CPU time; less than `wall` if the env waits (for a simulator, a server, a device).
    """

    wall: float
    cpu: float


@dataclass(frozen=True)
class Measured:
    """The result of measuring an env.

    Attributes:
        cost: The cost of a step, including its share of the resets; None if there were too few steps.
        steps: The number of steps that were played.
        obs_bytes: The bytes of the arrays in an observation.
        raised: The error of the env as text, or None. `cost` is then the cost of the steps before.
    """

    cost: StepCost | None
    steps: int
    obs_bytes: int
    raised: str | None = None


@dataclass(frozen=True)
class Moment:
    """A reading of several clocks, which count from different starts.

    Attributes:
        wall: Seconds of the wall clock.
        cpu: Seconds of CPU used.
        queued: Seconds in which the thread had no core to run on.
        sleeps: The number of times that the thread has given up its core to wait.
    """

    wall: float
    cpu: float
    queued: float = 0.0
    sleeps: int = 0


def read_clocks() -> Moment:
    """Reads the clocks of this process and this thread; reads them again if the thread had to wait for a core."""
    queued = _queued_seconds()
    while True:
        moment = Moment(time.perf_counter(), time.process_time(), queued, _sleeps())
        queued = _queued_seconds()
        if queued == moment.queued:
            return moment


def spent(before: Moment, now: Moment) -> float:
    """Returns the seconds between two moments, without those in which this thread waited for a core."""
    return max(0.0, now.wall - before.wall - (now.queued - before.queued))


def is_being_measured() -> bool:
    """Returns whether the env that calls this is being measured. An env's episodes then belong to no pool."""
    return getattr(_this_thread, "is_measuring", False)


def _queued_seconds() -> float:
    try:
        with open("/proc/thread-self/schedstat", encoding="utf-8") as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _sleeps() -> int:
    """Returns how often this thread has slept. If the system does not count that, each call returns one more."""
    if _RUSAGE_THREAD is None:
        return next(_looks)
    return resource.getrusage(_RUSAGE_THREAD).ru_nvcsw


def measure(
    env: Any,
    read: Callable[[], Moment] = read_clocks,
    seconds: float = _SECONDS,
    computed: Sequence[Callable[[Any], Any]] = (),
) -> Measured:
    """Measures an env by stepping it for about `seconds`. The env cannot be used afterwards.

    The class in which a face wraps its envs may have a method `steps_to_measure`, which returns an iterator: each
    `next` does one step as the face does, and resets if that is due. (Only the class is searched for it, because
    some envs have every attribute.) Other envs are stepped with samples of their action space, restricted by a mask of
    valid actions if there is one.

    Args:
        env: The env.
        read: Reads the clocks.
        seconds: The time to step it for.
        computed: Functions that are called with the env after each reset and step.
    """
    raised, play, steps, resets = None, None, _Tally(), _Tally()
    at_once = 1  # the number of steps before the next reading of the clocks
    _this_thread.is_measuring = True
    try:
        play = _OwnPlay(env) if hasattr(type(env), "steps_to_measure") else _RandomPlay(env, computed)
        play.reset()  # not measured, because the first calls include one-time work
        play.step()
        is_over, began = True, read()
        now = began
        while not _is_enough(steps.count, now.wall - began.wall, seconds):
            before, count = now, 0
            if is_over:
                play.reset()
                is_over, now = False, read()
                resets.add(1, before, now)
                continue
            while count < at_once and not is_over:
                is_over = play.step()
                count += 1
            now = read()
            steps.add(count, before, now)
            if count == at_once and now.wall - before.wall < _LOOKS_EVERY:
                at_once *= 2
    except Exception as error:
        raised = f"{type(error).__name__}: {text_of(error)}"
    finally:
        _this_thread.is_measuring = False
    is_known = steps.count >= _LEAST_STEPS or (steps.count > 0 and raised is None)
    cost = _mean_cost(steps, resets) if is_known else None
    return Measured(cost, steps.count, 0 if play is None else _nbytes(play.obs), raised)


def _is_enough(steps: int, elapsed: float, seconds: float) -> bool:
    return (steps >= _LEAST_STEPS and elapsed >= seconds) or (steps > 0 and elapsed >= _MOST_SECONDS)


class _Tally:
    """The total cost of some steps, or of some resets."""

    def __init__(self) -> None:
        self.count = 0
        self.cpu = self.waiting = 0.0

    def add(self, count: int, before: Moment, now: Moment) -> None:
        """Adds the cost of `count` steps or resets, taken between two moments.

        Time that is neither CPU nor queueing counts as waiting only if the thread has slept. Otherwise the host of a
        virtual machine had the core, which is not a cost of the env.
        """
        cpu = now.cpu - before.cpu
        self.count += count
        self.cpu += cpu
        if now.sleeps != before.sleeps:
            self.waiting += (now.wall - before.wall) - cpu - (now.queued - before.queued)

    def mean(self) -> StepCost:
        cpu = self.cpu / self.count
        return StepCost(cpu + max(0.0, self.waiting) / self.count, cpu)


def _mean_cost(steps: _Tally, resets: _Tally) -> StepCost:
    """Returns the cost of a step, including its share of a reset."""
    step, reset = steps.mean(), resets.mean()
    ended = resets.count - 1
    length = steps.count / ended if ended > 0 else max(steps.count, _EPISODE_STEPS)
    return StepCost(step.wall + reset.wall / length, step.cpu + reset.cpu / length)


class _RandomPlay:
    """Steps an env with samples of its action space. These are drawn in advance if no mask limits the actions."""

    def __init__(self, env: Any, computed: Sequence[Callable[[Any], Any]]) -> None:
        self._env, self.obs, self._computed = env, None, computed
        is_vector = is_vector_env(env)
        self._actions = batch_space(env.single_action_space, env.num_envs) if is_vector else env.action_space
        self._actions.seed(0)
        self._drawn = itertools.cycle([self._actions.sample() for _ in range(_DRAWN)])
        self._needs_resets = not is_vector or _autoreset_of(env) == "Disabled"
        self._ended: Callable[[Any], Any] = np.any if is_vector else bool
        self._find_mask: Callable[[Any, Any], Any] | None = None
        self._is_seeded = False
        self._info: Any = None

    def reset(self) -> None:
        seed = {} if self._is_seeded else {"seed": 0}
        self.obs, self._info = self._env.reset(**seed)
        if not self._is_seeded:
            self._find_mask = _finder_of_masks(self._env, self.obs, self._info)
        self._is_seeded = True
        self._compute()

    def step(self) -> bool:
        """Steps the env. Returns whether a reset is due."""
        action = next(self._drawn) if self._find_mask is None else self._sample(self._find_mask)
        self.obs, _, terminated, truncated, self._info = self._env.step(action)
        self._compute()
        return self._needs_resets and bool(self._ended(terminated) or self._ended(truncated))

    def _compute(self) -> None:
        for function in self._computed:
            function(self._env)

    def _sample(self, find_mask: Callable[[Any, Any], Any]) -> Any:
        try:
            return self._actions.sample(mask=np.asarray(find_mask(self.obs, self._info), np.int8))
        except (AssertionError, KeyError, TypeError, ValueError):  # the mask is missing or does not fit the space
            return self._actions.sample()


def _finder_of_masks(env: Any, obs: Any, info: Any) -> Callable[[Any, Any], Any] | None:
    """Returns a function that finds an env's mask of valid actions; None if the env has no mask."""
    if isinstance(info, dict) and "action_mask" in info:
        return lambda obs, info: info["action_mask"]
    if isinstance(obs, dict) and "action_mask" in obs:
        return lambda obs, info: obs["action_mask"]
    core = core_of(env)
    if hasattr(type(core), "action_masks"):
        return lambda obs, info: core.action_masks()
    return None


def _autoreset_of(env: Any) -> Any:
    """Returns the value of a vector env's autoreset mode. Gymnasium 1.0 has no enum `AutoresetMode`."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    return getattr(mode, "value", mode)


class _OwnPlay:
    """Steps an env with the method `steps_to_measure` of the face's wrapper class."""

    obs = None

    def __init__(self, env: Any) -> None:
        self._steps: Iterator[None] = env.steps_to_measure()

    def reset(self) -> None:
        """Does nothing, because `step` also resets the env if that is due."""

    def step(self) -> bool:
        next(self._steps)
        return False


def _nbytes(obs: Any) -> int:
    if isinstance(obs, dict):
        return sum(map(_nbytes, obs.values()))
    if isinstance(obs, (tuple, list)):
        return sum(map(_nbytes, obs))
    return int(getattr(obs, "nbytes", 0))
