"""From a manager's configuration to a pool's options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from remuda import FaultPolicy

_OURS = ("autoreset", "spares", "seeding", "observation_space", "start_method", "vector_size")


def pool_options(
    given: Mapping[str, Any], *, context: str, step_timeout: float | None, reset_timeout: float | None
) -> dict[str, Any]:
    """Return the keywords for :class:`remuda.Pool`.

    Args:
        given: the configuration's key ``remuda``.
        context: how workers start.
        step_timeout: seconds after which a step that could not be interrupted ends its worker; ``None``: never.
        reset_timeout: the same for a reset with all its attempts.

    Raises:
        ValueError: an option that the manager decides on.
    """
    if theirs := [name for name in _OURS if name in given]:
        raise ValueError(
            f"expected cfg.remuda to have options of remuda.Pool that the manager leaves open, got {theirs}: "
            "use auto_reset, seed() and context"
        )
    options = {"preload": ("remuda.ding",) if context == "forkserver" else (), "name": "ding", **given}
    options["start_method"] = context
    policy = options.get("faults", "raise")
    if isinstance(policy, str):
        policy = FaultPolicy(policy)  # type: ignore[arg-type]  # checked there
    if options.get("backend", "process") == "process":
        policy = _with_deadlines(policy, step_timeout=step_timeout, reset_timeout=reset_timeout)
    return {**options, "faults": policy}


def _with_deadlines(policy: FaultPolicy, **seconds: float | None) -> FaultPolicy:
    """Those that the policy has of its own stay."""
    missing = {name: value for name, value in seconds.items() if getattr(policy, name) is None}
    return dataclasses.replace(policy, **missing)  # type: ignore[arg-type]  # they are these fields
