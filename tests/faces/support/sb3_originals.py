"""Runs Stable-Baselines3's vector env beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium_face_envs import EnvFns
from pool_envs import assert_same
from stable_baselines3.common.vec_env import SubprocVecEnv as TheirSubprocVecEnv
from stable_baselines3.common.vec_env import VecEnv

from remuda.sb3 import SubprocVecEnv


def compare(ours: VecEnv, reference: VecEnv, steps: int) -> None:
    """Resets and steps two vector envs alike, or two wrappers of such, and compares all that they return."""
    for attribute in ("num_envs", "observation_space", "action_space", "render_mode", "reset_infos"):
        assert getattr(ours, attribute) == getattr(reference, attribute)
    for envs in (ours, reference):
        envs.seed(3)
    assert_same(ours.reset(), reference.reset(), "reset")
    reference.action_space.seed(7)
    for i in range(steps):
        assert_same(ours.unwrapped.reset_infos, reference.unwrapped.reset_infos, f"reset_infos before step {i}")
        actions = np.array([reference.action_space.sample() for _ in range(ours.num_envs)])
        our_step, their_step = ours.step(actions), reference.step(actions)
        for info in (*our_step[3], *their_step[3]):
            info.get("episode", {}).pop("t", None)  # the duration, in seconds
        assert_same(our_step, their_step, f"step {i}")


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
