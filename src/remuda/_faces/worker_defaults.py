"""The default places of workers: a process for each env, as in the systems that the faces imitate."""

from __future__ import annotations

from typing import Any

import remuda


def set_worker_defaults(options: Any, name: str) -> None:
    """Completes a pool's options. On a cluster, a shard has as many workers as it has CPUs.

    Args:
        options: The caller's; changed in place.
        name: The workers' name, unless the options have one.
    """
    options["name"] = options.get("name") or name
    options.setdefault("backend", "process")
    if not isinstance(options["backend"], remuda.Ray):
        options.setdefault("num_workers", None)


def set_local_defaults(options: Any, name: str) -> None:
    """Does the same for a face that must choose before the start whether each env runs in a process of its own."""
    set_worker_defaults(options, name)
    if options["backend"] == "auto":
        options["backend"] = "process"
