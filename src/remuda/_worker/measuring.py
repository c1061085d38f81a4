"""Measures the cost of an env by stepping it with random actions briefly. The env cannot be used afterwards."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from remuda._wire.exceptions import text_of
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


@dataclass(frozen=True)
class StepCost:
    """The mean seconds of one step: of wall time, if the env is alone in a process, and of CPU time.

    `cpu` is less than `wall` if the env waits for a simulator, a server or a device.
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
        problem: The reason why there are no more steps, or None. `cost` is then the cost of the steps before.
    """

    cost: StepCost | None
    steps: int
    obs_bytes: int
    problem: str | None = None


@dataclass(frozen=True)
class Moment:
    """A reading of several clocks: seconds of wall time, of CPU time, and in which this thread waited for a core.

    `sleeps`: the number of times that the thread has given up its core to wait.
    """

    wall: float
    cpu: float
    queued: float = 0.0
    sleeps: int = 0


def read_clocks() -> Moment:
    """Reads the clocks of this process and this thread."""
    return Moment(time.perf_counter(), time.process_time(), _queued_seconds(), _sleeps())


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


def measure_in_worker(env: Any, computed: Sequence[Callable[[Any], Any]]) -> Measured:
    """Measures the env of a worker process, unless it has started processes, whose work the clocks would not show."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return measure(env, computed=computed)
    return Measured(None, 0, 0, "it has started a process, whose work measuring would not see")


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
    problem, obs, count, cpu, waiting = None, None, 0, 0.0, 0.0
    at_once = 1  # the number of steps before the next reading of the clocks
    _this_thread.is_measuring = True
    try:
        steps = env.steps_to_measure() if hasattr(type(env), "steps_to_measure") else _random_steps(env, computed)
        obs = next(steps)  # not measured, because the first calls include one-time work
        began = now = read()
        while not _is_enough(count, now.wall - began.wall, seconds):
            before = now
            for _ in range(at_once):
                obs = next(steps)
            now = read()
            count, used = count + at_once, now.cpu - before.cpu
            cpu += used
            # If the thread has not slept, other time was the host's of a virtual machine, which is no cost of the env.
            if now.sleeps != before.sleeps:
                waiting += now.wall - before.wall - used - (now.queued - before.queued)
            if now.wall - before.wall < _LOOKS_EVERY:
                at_once *= 2
    except Exception as error:
        problem = f"{type(error).__name__}: {text_of(error)}"
    finally:
        _this_thread.is_measuring = False
    is_known = count >= _LEAST_STEPS or (count > 0 and problem is None)
    cost = StepCost((cpu + max(0.0, waiting)) / count, cpu / count) if is_known else None
    return Measured(cost, count, _nbytes(obs), problem)


def _is_enough(steps: int, elapsed: float, seconds: float) -> bool:
    return (steps >= _LEAST_STEPS and elapsed >= seconds) or (steps > 0 and elapsed >= _MOST_SECONDS)


def _random_steps(env: Any, computed: Sequence[Callable[[Any], Any]]) -> Iterator[Any]:
    """Steps an env with samples of its action space, and resets it if that is due. Yields each step's observation."""
    is_vector = is_vector_env(env)
    actions = batch_space(env.single_action_space, env.num_envs) if is_vector else env.action_space
    actions.seed(0)
    drawn = itertools.cycle([actions.sample() for _ in range(_DRAWN)])
    needs_resets = not is_vector or _autoreset_of(env) == "Disabled"
    seed: dict[str, int] = {"seed": 0}
    while True:
        obs, info = env.reset(**seed)
        find_mask, seed, is_over = _finder_of_masks(env, obs, info), {}, False
        _call_each(computed, env)
        while not is_over:
            action = next(drawn) if find_mask is None else _sample(actions, find_mask, obs, info)
            obs, _, terminated, truncated, info = env.step(action)
            _call_each(computed, env)
            is_over = needs_resets and bool(np.any(terminated) or np.any(truncated))
            yield obs


def _call_each(functions: Sequence[Callable[[Any], Any]], env: Any) -> None:
    for function in functions:
        function(env)


def _sample(actions: Any, find_mask: Callable[[Any, Any], Any], obs: Any, info: Any) -> Any:
    try:
        return actions.sample(mask=np.asarray(find_mask(obs, info), np.int8))
    except (AssertionError, KeyError, TypeError, ValueError):  # the mask is missing or does not fit the space
        return actions.sample()


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


def _nbytes(obs: Any) -> int:
    if isinstance(obs, dict):
        return sum(map(_nbytes, obs.values()))
    if isinstance(obs, (tuple, list)):
        return sum(map(_nbytes, obs))
    return int(getattr(obs, "nbytes", 0))
