"""Which options need workers that are processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda._engine.startup.start import Settings

# Options that only processes have, the value that others must have, and why.
_OF_PROCESSES = (
    ("worker_env", None, ", and share its environment"),
    ("devices", None, ", and see the GPUs that it sees"),
    ("max_worker_memory", None, ", which nobody replaces"),
    ("worker_output", "inherit", " and write where it writes; use backend='process', or redirect the process"),
)


def check_processes(settings: Settings) -> None:
    """Raises ValueError where one of them meets workers of another kind."""
    if settings.backend == "process":
        return
    for name, expected, why in _OF_PROCESSES:
        if (got := getattr(settings, name)) != expected:
            raise ValueError(
                f"expected {name}={expected!r} for backend={settings.backend!r}, got {got!r}: its workers run in this "
                f"process{why}"
            )
