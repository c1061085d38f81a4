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
from gymnasium_face_envs import ColourSpace, EchoEnv, SpaceEnv

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
        AsyncVectorEnv(fns(*BOUNDS))


def test_the_mode_different_batches_the_bounds() -> None:
    ours, reference = (cls(fns(*BOUNDS), observation_mode="different") for cls in (AsyncVectorEnv, SyncVectorEnv))
    assert ours.observation_space == reference.observation_space
    assert ours.single_observation_space == reference.single_observation_space == BOUNDS[0]
    obs, _ = ours.reset(seed=3)
    assert obs in ours.observation_space
    np.testing.assert_array_equal(obs, reference.reset(seed=3)[0])
    ours.close()


def test_a_pair_of_spaces_is_the_batched_and_the_single_space() -> None:
    single = spaces.Box(0, 9, (2,))
    batched = spaces.Box(-9, 9, (3, 2))
    envs = AsyncVectorEnv(fns(*BOUNDS), observation_mode=(batched, single))
    assert envs.observation_space is batched
    assert envs.single_observation_space is single
    assert envs.reset()[0].shape == (3, 2)
    envs.close()


def test_a_pair_of_other_objects_is_refused() -> None:
    with pytest.raises(TypeError, match="Expected both elements of observation_mode to be Spaces, got <class 'int'>"):
        AsyncVectorEnv(fns(*BOUNDS), observation_mode=(1, 2))


@pytest.mark.parametrize("mode", ["invalid", (1, 2, 3), None, BOUNDS[0]])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="Invalid `observation_mode`, expected: 'same' or 'different' or tuple"):
        AsyncVectorEnv(fns(*BOUNDS), observation_mode=mode)


@pytest.mark.parametrize("mode", ["same", "different", (spaces.Box(0, 1, (3, 2)), spaces.Box(0, 1, (2,)))])
@pytest.mark.parametrize(
    "other",
    [
        spaces.Box(0, 1, (3,)),
        spaces.Box(0, 1, (2,), np.float64),
        spaces.Discrete(3),
        spaces.Dict(a=spaces.Discrete(2)),
    ],
    ids=["shape", "dtype", "class", "structure"],
)
def test_spaces_that_cannot_be_batched_are_refused(mode: Any, other: spaces.Space[Any]) -> None:
    with pytest.raises(RuntimeError):
        AsyncVectorEnv(fns(spaces.Box(0, 1, (2,)), other, spaces.Box(0, 1, (2,))), observation_mode=mode)


@pytest.mark.parametrize("other", [spaces.Discrete(4), spaces.Box(0, 1, (2,))], ids=["range", "class"])
def test_different_action_spaces_are_refused(other: spaces.Space[Any]) -> None:
    with pytest.raises(RuntimeError, match="action"):
        AsyncVectorEnv([lambda: EchoEnv(spaces.Discrete(3)), lambda: EchoEnv(other)])


CUSTOM = [ColourSpace(), spaces.Dict(c=ColourSpace()), spaces.Tuple((spaces.Discrete(2), ColourSpace()))]


@pytest.mark.parametrize("space", CUSTOM)
def test_a_custom_space_with_shared_memory_is_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv(fns(space, space))


@pytest.mark.parametrize("space", CUSTOM)
def test_a_custom_space_without_shared_memory_works(space: spaces.Space[Any]) -> None:
    envs = AsyncVectorEnv(fns(space, space), shared_memory=False)
    obs, _ = envs.reset(seed=1)
    assert obs in envs.observation_space
    envs.close()


@pytest.mark.parametrize(
    "space", [spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)), spaces.Sequence(spaces.Discrete(3))]
)
@pytest.mark.parametrize("shared_memory", [True, False])
def test_graphs_and_sequences_work_with_shared_memory(space: spaces.Space[Any], shared_memory: bool) -> None:
    envs = AsyncVectorEnv(fns(space, space), shared_memory=shared_memory)
    obs, _ = envs.reset(seed=1)
    assert obs in envs.observation_space
    envs.close()


def test_no_env_is_built_in_this_process() -> None:
    built = []

    def build() -> gymnasium.Env[Any, Any]:
        built.append(1)
        return EchoEnv()

    for mode in ("same", "different"):
        envs = AsyncVectorEnv([build, build], observation_mode=mode)
        envs.reset()
        envs.close()
    assert not built


def test_observations_before_the_first_reset_are_zeros() -> None:
    envs = AsyncVectorEnv([EchoEnv, EchoEnv])
    assert envs.observations.tolist() == [[0], [0]]
    assert envs.observations.dtype == np.int64
    envs.close()


@pytest.mark.parametrize("copy", [True, False])
def test_observations_are_the_latest_and_never_overwritten(copy: bool) -> None:
    envs = AsyncVectorEnv([EchoEnv, EchoEnv], copy=copy)
    held = [envs.reset()[0]]
    for _ in range(12):  # more steps than frames
        held.append(envs.step([0, 0])[0])
        assert envs.observations is held[-1]
    assert [obs[0, 0] for obs in held] == list(range(100, 113))
    held[-1][:] = 0  # an observation may be modified
    assert envs.step([0, 0])[0].tolist() == [[113], [113]]
    envs.close()
