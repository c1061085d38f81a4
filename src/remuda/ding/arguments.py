"""Arguments as DI-engine has them, in the form that the pool and the workers take: options, and actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from remuda import FaultPolicy, PoolOptions
from remuda._faces.worker_defaults import set_local_defaults
from remuda._keywords import did_you_mean

REFUSED = {
    "autoreset": "use auto_reset and reset_inplace",
    "extras": "DI-engine's policies find what they need in the observation: put it there, as obs['action_mask']",
    "observation_space": "use shared_memory",
    "resets_ahead": "DI-engine's envs are told each time how to reset; with auto_reset they do so in the background",
    "seeding": "use seed()",
    "spares": "use auto_reset, with which envs reset in the background while others step",
    "start_method": "use context",
    "vector_size": "a manager of DI-engine steps, resets and asks each env by itself",
}
"""Options of the pool that the manager decides on, and what to do instead."""


class ManagerOptions:
    """The configuration's key ``remuda``, checked when the configuration is read.

    Args:
        given: the key's value.
        context: how workers start.

    Raises:
        ValueError: an option that a pool does not have, or that the manager decides on; or faults that are no policy.
        TypeError: no mapping.

    Attributes:
        restarts: whether an env that fails is restarted.
    """

    def __init__(self, given: Any, context: str) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"expected cfg.remuda to be a dict of options of remuda.Pool, got {given!r}")
        _check_names(given)
        self._policy = FaultPolicy.of(given.get("faults", "raise"))
        self.restarts = self._policy.on_fault == "restart"
        preload = ("remuda.ding",) if context == "forkserver" else ()
        self._options = {"preload": preload, **given, "start_method": context}

    def keywords(self, *, step_timeout: float | None, reset_timeout: float | None) -> dict[str, Any]:
        """Return the keywords for :class:`remuda.Pool`.

        Args:
            step_timeout: seconds after which a step that could not be interrupted ends its worker; ``None``: never.
            reset_timeout: the same for a reset with all its attempts.
        """
        policy, options = self._policy, dict(self._options)
        set_local_defaults(options, "ding")
        if options["backend"] == "process":
            policy = _with_deadlines(policy, step_timeout=step_timeout, reset_timeout=reset_timeout)
        return {**options, "faults": policy}


def _check_names(given: Mapping[str, Any]) -> None:
    known = [name for name in PoolOptions.__annotations__ if name not in REFUSED]
    for name in given:
        if name in REFUSED:
            raise ValueError(f"expected cfg.remuda without {name!r}, which the manager decides on: {REFUSED[name]}")
        if name not in known:
            hint = did_you_mean(name, known, given) or f": there are {', '.join(known)}"
            raise ValueError(f"expected cfg.remuda to have options of remuda.Pool, got {name!r}{hint}")


def _with_deadlines(policy: FaultPolicy, **seconds: float | None) -> FaultPolicy:
    """Those that the policy has of its own stay."""
    missing = {name: value for name, value in seconds.items() if getattr(policy, name) is None}
    return dataclasses.replace(policy, **missing)  # type: ignore[arg-type]  # they are these fields


# -- actions ---------------------------------------------------------------------------------------------

# They are pickled on their way to a worker, since DI-engine's envs take whatever a policy gives them.


class SmallArray:
    """Pickles an array of numbers in half the time that NumPy takes for one so small; a plain array arrives.

    It is seen where an action is reported, and shows itself as the array.
    """

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (self.array.dtype.char, self.array.shape, self.array.tobytes())

    def __repr__(self) -> str:
        return repr(self.array)


def rebuild(char: str, shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    """Return the array, which the env may write to."""
    array: np.ndarray[Any, Any] = np.ndarray(shape, char, bytearray(data))
    return array


def quick(action: Any) -> Any:
    """Return what to send for this action."""
    if type(action) is np.ndarray and action.size <= _SMALL and action.dtype.kind in "biuf" and action.dtype.isnative:
        return SmallArray(action)
    return action


_SMALL = 64  # above, what is fixed about pickling an array does not count
