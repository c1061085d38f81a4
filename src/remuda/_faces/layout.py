"""Where workers run unless the caller says otherwise: as in what the faces imitate, a process for each env."""

from __future__ import annotations

from typing import Any


def one_process_an_env(options: Any) -> None:
    """Put what is not among a pool's options there."""
    options.setdefault("num_workers", None)
    options.setdefault("backend", "process")


def never_the_caller(options: Any) -> None:
    """The same for a face whose envs must know beforehand that they run in a process of their own."""
    one_process_an_env(options)
    if options["backend"] == "auto":
        options["backend"] = "process"
