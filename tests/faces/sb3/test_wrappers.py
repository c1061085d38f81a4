"""Stable-Baselines3's wrappers return the same around our vector env and around SB3's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium_face_envs import SpaceEnv
from sb3_face_envs import PictureEnv, cartpoles
from sb3_originals import both, compare
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from remuda.sb3 import SubprocVecEnv

PICTURES = spaces.Box(0, 255, (36, 36, 1), np.uint8)
DICTS = spaces.Dict(picture=PICTURES, place=spaces.Box(-1, 1, (2,)))

WRAPPED: dict[str, tuple[Any, Callable[[VecEnv], VecEnv]]] = {
    "an array": (spaces.Box(-1, 1, (3,)), lambda envs: VecNormalize(VecCheckNan(VecMonitor(envs), True))),
    "pictures": (PICTURES, lambda envs: VecTransposeImage(VecFrameStack(envs, 3))),
    "a dict": (DICTS, lambda envs: VecNormalize(VecFrameStack(VecMonitor(envs), 2), norm_obs_keys=["place"])),
    "a part of a dict": (DICTS, lambda envs: VecExtractDictObs(envs, "place")),
}


@pytest.mark.parametrize(("space", "wrap"), WRAPPED.values(), ids=WRAPPED.keys())
def test_wrappers_return_the_same_as_around_sb3s(space: spaces.Space[Any], wrap: Callable[[VecEnv], VecEnv]) -> None:
    with both([lambda: SpaceEnv(space)] * 2, num_workers=1) as sides:
        compare(*map(wrap, sides), 40)


def test_wrappers_forward_attributes_to_the_face() -> None:
    envs = VecFrameStack(VecNormalize(SubprocVecEnv(cartpoles(2))), 2)
    assert envs.get_attr("spec")[0].id == "CartPole-v1"
    assert [process.is_alive() for process in envs.processes] == [True, True]
    assert isinstance(envs.unwrapped, SubprocVecEnv)
    assert envs.getattr_depth_check("processes", already_found=True) is not None
    envs.close()
    assert envs.unwrapped.closed


def test_a_video_has_the_frame_rate_of_the_env(tmp_path: Path) -> None:
    envs = VecVideoRecorder(
        SubprocVecEnv([PictureEnv] * 2), str(tmp_path), record_video_trigger=lambda step: step == 0, video_length=3
    )
    assert envs.frames_per_sec == 12
    envs.reset()
    for _ in range(4):
        envs.step(np.array([0, 0]))
    envs.close()
    assert (tmp_path / "rl-video-step-0-to-step-3.mp4").stat().st_size > 0
