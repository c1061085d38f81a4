"""The Gymnasium face returns, bit for bit, what Gymnasium's vector envs return for the same envs, seeds and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import gymnasium
import gymnasium_originals
import numpy as np
import pytest
import simulator_envs
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv as TheirAsyncVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium_face_envs import SpaceEnv, TimelessEnv
from pairs import each
from pool_envs import ColourSpace, SampleEnv

from remuda.gymnasium import AsyncVectorEnv

MODES = list(AutoresetMode)
NUM_ENVS = 3

SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "scalar": spaces.Box(-1, 1, (), np.float64),
    "discrete": spaces.Discrete(7, start=-3),
    "multi_discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict(
        a=spaces.Discrete(3), b=spaces.Dict(c=spaces.Box(0, 1, (2,)), d=spaces.Tuple((spaces.Discrete(2),)))
    ),
    "tuple": spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiBinary(3), spaces.Tuple((spaces.Discrete(4),)))),
    "text": spaces.Text(8),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
    "one_of": spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    "dict_of_text": spaces.Dict(word=spaces.Text(8), number=spaces.Box(0, 1, (1,))),
    "custom": ColourSpace(),
}


def compare(
    env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
    other: Callable[..., VectorEnv],
    steps: int,
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    seed: Any = 3,
    masked: float = 0.0,
    **options: Any,
) -> None:
    ours = AsyncVectorEnv(env_fns, autoreset_mode=mode, shared_memory=False, **options)
    gymnasium_originals.compare(ours, other(env_fns, autoreset_mode=mode), steps, seed=seed, masked=masked)


def with_statistics(env_id: str) -> gymnasium.Env[Any, Any]:
    return TimelessEnv(RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=20)))


@each(
    env_id=["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"],
    mode__other=[*product(MODES[:2], [SyncVectorEnv, TheirAsyncVectorEnv])],
)
def test_statistics_of_episodes_equal_gymnasiums(
    mode: AutoresetMode, other: Callable[..., VectorEnv], env_id: str
) -> None:
    compare([lambda: with_statistics(env_id)] * NUM_ENVS, other, 100, mode, num_workers=2)


@pytest.mark.watchdog(900)  # each case starts processes of a simulator
@each(simulator=simulator_envs.SOME, mode=MODES[:2])
def test_simulators_equal_gymnasiums(simulator: str, mode: AutoresetMode) -> None:
    """Gymnasium's processes are not forked, because a fork of a process that has rendered cannot render."""
    reference = partial(TheirAsyncVectorEnv, context="forkserver")
    compare(simulator_envs.env_fns(simulator, 2), reference, 30, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_every_observation_space_and_kind_of_info_equals_gymnasiums(
    space: spaces.Space[Any], mode: AutoresetMode
) -> None:
    """Same-step autoreset has the most infos, so only this mode runs in processes."""
    backend = "process" if mode is AutoresetMode.SAME_STEP else "serial"
    options: dict[str, Any] = {"backend": backend, "lazy_infos": mode is not AutoresetMode.DISABLED}
    compare([lambda: SpaceEnv(space)] * NUM_ENVS, SyncVectorEnv, 60, mode, num_workers=2, **options)


@pytest.mark.parametrize("mode", MODES)
def test_steps_equal_gymnasiums_async_vector_env(mode: AutoresetMode) -> None:
    compare([lambda: SpaceEnv(SPACES["dict"])] * NUM_ENVS, TheirAsyncVectorEnv, 60, mode)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_actions_of_every_space_arrive_as_in_gymnasium(space: spaces.Space[Any]) -> None:
    compare([lambda: SampleEnv(spaces.Discrete(9), space)] * NUM_ENVS, SyncVectorEnv, 10, backend="serial")


@each(mode=MODES, seed=[None, 5, [5, None, 7], (1, 2, 3)])
def test_seeds_are_used_as_in_gymnasium(mode: AutoresetMode, seed: Any) -> None:
    compare([lambda: SpaceEnv(spaces.Discrete(100))] * NUM_ENVS, SyncVectorEnv, 20, mode, seed)


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_mask_works_as_in_gymnasium(mode: AutoresetMode) -> None:
    """Masked-out envs return their current observation and no info, and their episodes continue."""
    compare([lambda: SpaceEnv(spaces.Box(0, 1, (2,)))] * NUM_ENVS, SyncVectorEnv, 60, mode, masked=0.3)
