"""ALF's parallel envs on remuda: change the import, keep the rest.

from remuda.alf import FastParallelEnvironment    # was: from alf.environments.fast_parallel_environment import ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.alf.errors import (
        BrokenPoolError,
        ClosedError,
        CorruptReplyError,
        EnvError,
        EnvTimeoutError,
        InvalidActionError,
        RestartLimitError,
        WorkerDiedError,
    )
    from remuda.alf.fast_parallel_environment import FastParallelEnvironment
    from remuda.alf.parallel_alf_environment import ParallelAlfEnvironment
    from remuda.alf.process_environment import ProcessEnvironment

__all__ = [
    "BrokenPoolError",
    "ClosedError",
    "CorruptReplyError",
    "EnvError",
    "EnvTimeoutError",
    "FastParallelEnvironment",
    "InvalidActionError",
    "ParallelAlfEnvironment",
    "ProcessEnvironment",
    "RestartLimitError",
    "WorkerDiedError",
]

_ENVIRONMENTS = {
    "FastParallelEnvironment": "fast_parallel_environment",
    "ParallelAlfEnvironment": "parallel_alf_environment",
    "ProcessEnvironment": "process_environment",
}


def __getattr__(name: str) -> Any:
    """The caller's side is imported when first asked for: workers import `remuda.alf.worker`, and no ALF with it."""
    if name not in __all__:
        raise AttributeError(f"module 'remuda.alf' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"remuda.alf.{_ENVIRONMENTS.get(name, 'errors')}"), name)
