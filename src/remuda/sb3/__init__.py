"""Stable-Baselines3's vector env on remuda: change the import, keep the rest.

from remuda.sb3 import SubprocVecEnv    # was: from stable_baselines3.common.vec_env import SubprocVecEnv
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda._faces.frameworks import lazily

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
    from remuda.sb3.pool_vec_env import vec_env
    from remuda.sb3.rollout_buffer import RolloutBuffer
    from remuda.sb3.stats_callback import StatsCallback
    from remuda.sb3.subproc_vec_env import SubprocVecEnv

__all__ = [
    "BrokenPoolError",
    "ClosedError",
    "CorruptReplyError",
    "EnvError",
    "EnvTimeoutError",
    "RestartLimitError",
    "RolloutBuffer",
    "StatsCallback",
    "SubprocVecEnv",
    "WorkerDiedError",
    "vec_env",
]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name
    modules = {
        "RolloutBuffer": "rollout_buffer",
        "StatsCallback": "stats_callback",
        "SubprocVecEnv": "subproc_vec_env",
        "vec_env": "pool_vec_env",
    }
    __getattr__, __dir__ = lazily(__name__, __all__, modules)
