"""Where workers run unless the caller says otherwise: a process for each env, as in what the faces imitate."""

from __future__ import annotations

from typing import Any

import remuda


def set_worker_defaults(options: Any, name: str) -> None:
    """Completes a pool's options. On a cluster, a shard has as many workers as it has CPUs.

    Args:
        options: Those that the caller has given; changed in place.
        name: Of the workers, unless it is given.
    """
    options["name"] = options.get("name") or name
    options.setdefault("backend", "process")
    if not isinstance(options["backend"], remuda.Ray):
        options.setdefault("num_workers", None)


def set_local_defaults(options: Any, name: str) -> None:
    """Does the same for a face whose envs must find out beforehand whether they run in a process of their own.

    Raises:
        TypeError: The backend is on other machines.
    """
    set_worker_defaults(options, name)
    if options["backend"] == "auto":
        options["backend"] = "process"
    if isinstance(options["backend"], remuda.Ray):
        raise TypeError(
            f"expected a backend on this machine, got {options['backend']!r}: here results come env by env, and from a "
            "cluster shard by shard; remuda.Pool, remuda.gymnasium and remuda.sb3 run on one"
        )
