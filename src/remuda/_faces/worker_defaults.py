"""The faces' defaults for workers: a process for each env, as in the systems that they imitate."""

from __future__ import annotations

from typing import Any

import remuda


def set_worker_defaults(options: Any, name: str) -> None:
    """Adds a face's defaults to a pool's options: one worker for each env, or on a cluster one for each CPU.

    Args:
        options: The caller's; changed in place.
        name: The workers' name, if the options have none.
    """
    options["name"] = options.get("name") or name
    options.setdefault("backend", "process")
    if not isinstance(options["backend"], remuda.Ray):
        options.setdefault("num_workers", None)


def set_local_defaults(options: Any, name: str) -> None:
    """Adds the defaults of `set_worker_defaults`, and replaces the backend "auto" by "process"."""
    set_worker_defaults(options, name)
    if options["backend"] == "auto":
        options["backend"] = "process"
