"""Stable-Baselines3's vector env on remuda: change the import, keep the rest.

from remuda.sb3 import SubprocVecEnv    # was: from stable_baselines3.common.vec_env import SubprocVecEnv
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.sb3.errors import (
        BrokenPoolError,
        ClosedError,
        CorruptReplyError,
        EnvError,
        EnvTimeoutError,
        RestartLimitError,
        WorkerDiedError,
    )
    from remuda.sb3.subproc_vec_env import SubprocVecEnv

__all__ = [
    "BrokenPoolError",
    "ClosedError",
    "CorruptReplyError",
    "EnvError",
    "EnvTimeoutError",
    "RestartLimitError",
    "SubprocVecEnv",
    "WorkerDiedError",
]


def __getattr__(name: str) -> Any:
    """The caller's side is imported when first asked for: workers import `remuda.sb3.worker`, and not SB3 with it."""
    if name not in __all__:
        raise AttributeError(f"module 'remuda.sb3' has no attribute {name!r}")
    from remuda.sb3 import errors, subproc_vec_env

    return getattr(subproc_vec_env if name == "SubprocVecEnv" else errors, name)
