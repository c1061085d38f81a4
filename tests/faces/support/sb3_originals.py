"""Runs Stable-Baselines3's vector env beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sb3_face_envs import EnvFns
from stable_baselines3.common.vec_env import SubprocVecEnv as TheirSubprocVecEnv

from remuda.sb3 import SubprocVecEnv


@contextmanager
def both(env_fns: EnvFns, **options: Any) -> Iterator[tuple[SubprocVecEnv, TheirSubprocVecEnv]]:
    """Yields our vector env and SB3's. SB3's workers are forked, because their imports would take most of the time."""
    original = TheirSubprocVecEnv(list(env_fns), start_method="fork")
    try:
        ours = SubprocVecEnv(env_fns, **options)
        try:
            yield ours, original
        finally:
            ours.close()
    finally:
        original.close()
