"""ALF's parallel envs on remuda: change the import, keep the rest.

from remuda.alf import FastParallelEnvironment    # was: from alf.environments.fast_parallel_environment import ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda._faces.frameworks import lazily

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
    from remuda.alf.parallel_environment import FastParallelEnvironment, ParallelAlfEnvironment
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

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name
    _MODULES = {
        "FastParallelEnvironment": "parallel_environment",
        "ParallelAlfEnvironment": "parallel_environment",
        "ProcessEnvironment": "process_environment",
    }
    __getattr__, __dir__ = lazily(__name__, __all__, _MODULES)
