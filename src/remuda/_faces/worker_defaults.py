"""The faces' defaults for workers: one for each env, as in the systems that they imitate."""

from __future__ import annotations

from typing import Any

import remuda
from remuda._system.machine import backend_here


def set_worker_defaults(options: Any, name: str) -> None:
    """Adds a face's defaults to a pool's options: one worker for each env, or on a cluster one for each CPU.

    The backend is that of the system: `backend_here`.

    Args:
        options: The caller's; changed in place.
        name: The workers' name, if the options have none.
    """
    options["name"] = options.get("name") or name
    if options.get("backend") is None:
        options["backend"] = backend_here()
    if not isinstance(options["backend"], remuda.Ray):
        options.setdefault("num_workers", None)


def set_local_defaults(options: Any, name: str) -> None:
    """Adds the defaults of `set_worker_defaults`, and replaces the backend "auto" by the system's."""
    set_worker_defaults(options, name)
    if options["backend"] == "auto":
        options["backend"] = backend_here()
