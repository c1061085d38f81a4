"""From a manager's configuration to a pool's options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from remuda import FaultPolicy, Pool
from remuda._keywords import did_you_mean

_OURS = ("autoreset", "spares", "seeding", "observation_space", "start_method", "vector_size")


class PoolOptions:
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
        self._options = {"preload": preload, "name": "ding", **given, "start_method": context}

    def keywords(self, *, step_timeout: float | None, reset_timeout: float | None) -> dict[str, Any]:
        """Return the keywords for :class:`remuda.Pool`.

        Args:
            step_timeout: seconds after which a step that could not be interrupted ends its worker; ``None``: never.
            reset_timeout: the same for a reset with all its attempts.
        """
        policy = self._policy
        if self._options.get("backend", "process") == "process":
            policy = _with_deadlines(policy, step_timeout=step_timeout, reset_timeout=reset_timeout)
        return {**self._options, "faults": policy}


def _check_names(given: Iterable[str]) -> None:
    if theirs := [name for name in _OURS if name in given]:
        raise ValueError(
            f"expected cfg.remuda to have options of remuda.Pool that the manager leaves open, got {theirs}: "
            "use auto_reset, seed() and context"
        )
    known = [name for name in inspect.signature(Pool).parameters if name != "env_fns"]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f": there are {', '.join(n for n in known if n not in _OURS)}"
            raise ValueError(f"expected cfg.remuda to have options of remuda.Pool, got {name!r}{hint}")


def _with_deadlines(policy: FaultPolicy, **seconds: float | None) -> FaultPolicy:
    """Those that the policy has of its own stay."""
    missing = {name: value for name, value in seconds.items() if getattr(policy, name) is None}
    return dataclasses.replace(policy, **missing)  # type: ignore[arg-type]  # they are these fields
