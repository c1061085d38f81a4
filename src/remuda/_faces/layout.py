"""Where workers run unless the caller says otherwise: as in what the faces imitate, a process for each env."""

from __future__ import annotations

from typing import Any

import remuda


def one_process_an_env(options: Any) -> None:
    """Put what is not among a pool's options there. On a cluster, a shard has as many workers as it has CPUs."""
    options.setdefault("backend", "process")
    if not isinstance(options["backend"], remuda.Ray):
        options.setdefault("num_workers", None)


def never_the_caller(options: Any) -> None:
    """The same for a face whose envs must know beforehand that they run in a process of their own, on this machine.

    Raises:
        TypeError: they are to run on others.
    """
    one_process_an_env(options)
    if options["backend"] == "auto":
        options["backend"] = "process"
    if isinstance(options["backend"], remuda.Ray):
        raise TypeError(
            f"expected a backend on this machine, got {options['backend']!r}: here results come env by env, and from a "
            "cluster shard by shard; remuda.Pool, remuda.gymnasium and remuda.sb3 run on one"
        )
