"""Observation modes, and envs with different spaces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium_face_envs import SpaceEnv
from gymnasium_originals import compare
from pairs import each
from pool_envs import ColourSpace, CountingEnv

from remuda.gymnasium import AsyncVectorEnv


def fns(*observation_spaces: spaces.Space[Any]) -> list[Callable[[], SpaceEnv]]:
    return [lambda space=space: SpaceEnv(space) for space in observation_spaces]  # type: ignore[misc]


BOUNDS = [spaces.Box(0, high, (2,)) for high in (1, 2, 3)]


def test_the_mode_same_requires_equal_spaces() -> None:
    message = re.escape(
        "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments observation "
        "spaces are not equivalent. If this is intentional, use `observation_mode='different'` instead."
    )
    with pytest.raises(RuntimeError, match=message):
        AsyncVectorEnv(fns(*BOUNDS), backend="serial")


def test_the_mode_different_batches_the_bounds() -> None:
    ours, reference = (cls(fns(*BOUNDS), observation_mode="different") for cls in (AsyncVectorEnv, SyncVectorEnv))
    assert ours.single_observation_space == BOUNDS[0]
    assert ours.reset(seed=3)[0] in ours.observation_space
    compare(ours, reference, 5)


def test_a_pair_of_spaces_is_the_batched_and_the_single_space() -> None:
    single = spaces.Box(0, 9, (2,))
    batched = spaces.Box(-9, 9, (3, 2))
    envs = AsyncVectorEnv(fns(*BOUNDS), observation_mode=(batched, single), backend="serial")
    assert envs.observation_space is batched
    assert envs.single_observation_space is single
    assert envs.reset()[0].shape == (3, 2)
    envs.close()


@each(
    mode=["same", "different", (spaces.Box(0, 1, (3, 2)), spaces.Box(0, 1, (2,)))],
    other=[
        spaces.Box(0, 1, (3,)),
        spaces.Box(0, 1, (2,), np.float64),
        spaces.Discrete(3),
        spaces.Dict(a=spaces.Discrete(2)),
    ],
)
def test_spaces_that_cannot_be_batched_are_refused(mode: Any, other: spaces.Space[Any]) -> None:
    with pytest.raises(RuntimeError):
        AsyncVectorEnv(fns(BOUNDS[0], other, BOUNDS[0]), observation_mode=mode, backend="serial")


def test_different_action_spaces_are_refused() -> None:
    for other in (spaces.Discrete(4), spaces.Box(0, 1, (2,))):
        with pytest.raises(RuntimeError, match="action"):
            AsyncVectorEnv([lambda space=space: SpaceEnv(BOUNDS[0], space) for space in (spaces.Discrete(3), other)])  # type: ignore[misc]


def test_a_custom_space_is_refused_only_with_shared_memory() -> None:
    for space in (ColourSpace(), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), ColourSpace()]))):
        with pytest.raises(ValueError, match="pass shared_memory=False"):
            AsyncVectorEnv(fns(space, space), backend="serial")
        AsyncVectorEnv(fns(space, space), shared_memory=False, backend="serial").close()


def test_no_env_is_built_in_this_process() -> None:
    built = []

    def build() -> gymnasium.Env[Any, Any]:
        built.append(1)
        return CountingEnv()

    AsyncVectorEnv([build, build], observation_mode="different").close()
    assert not built
