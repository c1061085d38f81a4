"""Converts DI-engine's options and actions to the form that the pool and the workers expect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Integral, Real
from types import NoneType
from typing import Any

import numpy as np

from remuda import FaultPolicy, PoolOptions
from remuda._faces.worker_defaults import set_local_defaults
from remuda._keywords import did_you_mean
from remuda.ding.reset_orders import ResetOrder

REFUSED = {
    "autoreset": "use auto_reset and reset_inplace",
    "extras": "DI-engine's policies find what they need in the observation: put it there, as obs['action_mask']",
    "observation_space": "use shared_memory",
    "resets_ahead": "DI-engine passes arguments to each reset; with auto_reset envs reset in the background",
    "seeding": "use seed()",
    "spares": "use auto_reset, with which envs reset in the background while others step",
    "start_method": "use context",
    "vector_size": "a manager of DI-engine steps, resets and asks each env by itself",
}
"""Options of the pool that the manager decides on, and what to do instead."""

WORDS = {"env_fns": "env_fn", "start_method": "context"}
"""DI-engine's words for arguments of the pool, for `in_words_of`."""

_LIMITS = ("step_timeout", "reset_timeout", "connect_timeout", "step_wait_timeout")
_NUMBERS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(_LIMITS, ((Real, NoneType), "a number of seconds or None")),
    "retry_waiting_time": (Real, "a number of seconds"),
    "max_retry": (Integral, "an int"),
    "wait_num": (Real, "a number"),
    "episode_num": (Real, "a number"),
}
"""The types of numbers in the configuration, and the words for them in errors."""


def check_options(cfg: Mapping[str, Any]) -> FaultPolicy:
    """Checks the numbers of the configuration and its key ``remuda``, and returns the fault policy in that key.

    Raises:
        ValueError: A time is negative, ``faults`` is invalid, or an option in ``remuda`` is unknown or is set by the
            manager.
        TypeError: A value is not a number, or ``remuda`` is not a mapping.
    """
    for name, (kinds, expected) in _NUMBERS.items():
        given = cfg.get(name)
        if not isinstance(given, kinds):
            raise TypeError(f"expected cfg.{name} to be {expected}, got {given!r}")
        if name in (*_LIMITS, "retry_waiting_time") and given is not None and not given >= 0:
            raise ValueError(f"expected cfg.{name} to be {expected}, at least 0, got {given!r}")
    options = cfg.get("remuda") or {}
    if not isinstance(options, Mapping):
        raise TypeError(f"expected cfg.remuda to be a dict of options of remuda.Pool, got {options!r}")
    known = [name for name in PoolOptions.__annotations__ if name not in REFUSED]
    for name in options:
        if name in REFUSED:
            raise ValueError(f"expected cfg.remuda without {name!r}, which the manager decides on: {REFUSED[name]}")
        if name not in known:
            hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
            raise ValueError(f"expected cfg.remuda to have options of remuda.Pool, got {name!r}{hint}")
    return FaultPolicy.of(options.get("faults", "raise"))


def pool_options(
    options: Mapping[str, Any],
    faults: FaultPolicy,
    context: str,
    step_timeout: float | None,
    order: ResetOrder,
) -> dict[str, Any]:
    """Returns the keywords for :class:`remuda.Pool`.

    Args:
        options: The configuration's key ``remuda``.
        faults: The policy in these options. Its deadlines have precedence over those that follow.
        context: The start method of workers.
        step_timeout: The seconds for a step; ``None``: no limit. One second later, so that its own time limit applies
            first, a worker is killed. A thread has only this limit.
        order: An order to reset an env, with the time limit for a reset.
    """
    preload = ("remuda.ding",) if context == "forkserver" else ()
    completed: dict[str, Any] = {"preload": preload, **options, "start_method": context}
    set_local_defaults(completed, "ding")
    if completed["backend"] in ("process", "thread"):
        deadlines: dict[str, Any] = {"step_timeout": None if step_timeout is None else step_timeout + 1.0}
        deadlines["reset_timeout"] = order.budget
        own = {name: deadline for name, deadline in deadlines.items() if getattr(faults, name) is None}
        limits = {"step_timeout": (step_timeout, "step_timeout"), "reset_timeout": order.limit}
        faults = _Deadlines(**{**dataclasses.asdict(faults), **own}, limits={name: limits[name] for name in own})
    return {**completed, "faults": faults}


@dataclasses.dataclass(frozen=True)
class _Deadlines(FaultPolicy):
    """A fault policy with deadlines that are longer than the manager's limits, and are reported as these.

    Attributes:
        limits: The seconds and the name of the manager's limit, by the name of the deadline.
    """

    limits: Mapping[str, tuple[float | None, str]] = dataclasses.field(default_factory=dict)

    def _reported(self, deadline: str) -> tuple[float | None, str]:
        return self.limits.get(deadline) or super()._reported(deadline)


# -- actions ---------------------------------------------------------------------------------------------

# Actions are sent to workers as pickles, because DI-engine's envs accept any object as an action.


class SmallArray:
    """A wrapper of a small array. Pickling it takes half the time of pickling the array. It is unpickled as an array.

    Its `repr`, which error reports show, is that of the array.
    """

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (self.array.dtype.char, self.array.shape, self.array.tobytes())

    def __repr__(self) -> str:
        return repr(self.array)


def rebuild(char: str, shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    """Rebuilds a pickled `SmallArray` as a plain array, which is writable."""
    array: np.ndarray[Any, Any] = np.ndarray(shape, char, bytearray(data))
    return array


def quick(action: Any) -> Any:
    """Returns an action in a form that is pickled fast: a small array is wrapped."""
    if type(action) is np.ndarray and action.size <= _SMALL and action.dtype.kind in "biuf" and action.dtype.isnative:
        return SmallArray(action)
    return action


_SMALL = 64  # the most elements of a small array: in larger ones, the fixed cost of pickling matters little
