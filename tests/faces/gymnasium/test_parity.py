"""The Gymnasium face, also in wrappers, returns, bit for bit, what Gymnasium's vector envs return for the same envs,
seeds and actions."""

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
from gymnasium.wrappers import vector as wrappers
from gymnasium_face_envs import SpaceEnv, TimelessEnv
from gymnasium_originals import SPACES
from pairs import each
from pool_envs import SampleEnv, counting

from remuda.gymnasium import AsyncVectorEnv

MODES = list(AutoresetMode)
NUM_ENVS = 3


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


@each(
    env_id=["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"],
    mode__other=[*product(MODES, [SyncVectorEnv, TheirAsyncVectorEnv])],
)
def test_statistics_of_episodes_equal_gymnasiums(
    mode: AutoresetMode, other: Callable[..., VectorEnv], env_id: str
) -> None:
    env_fns = [lambda: TimelessEnv(RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=20)))] * NUM_ENVS
    compare(env_fns, other, 100, mode, num_workers=2)


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


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_actions_of_every_space_arrive_as_in_gymnasium(space: spaces.Space[Any]) -> None:
    compare([lambda: SampleEnv(spaces.Discrete(9), space)] * NUM_ENVS, SyncVectorEnv, 10, backend="serial")


@each(mode=MODES, seed=[None, 5, [5, None, 7], (1, 2, 3)])
def test_seeds_and_reset_masks_work_as_in_gymnasium(mode: AutoresetMode, seed: Any) -> None:
    """Masked-out envs return their current observation and no info, and their episodes continue."""
    compare([lambda: SpaceEnv(spaces.Box(0, 1, (2,)))] * NUM_ENVS, SyncVectorEnv, 60, mode, seed, masked=0.3)


@each(space=SPACES.values(), mode=MODES, backend=["process", "serial", "thread"])
def test_masked_out_envs_of_a_pool_that_rebuilds_envs_return_what_gymnasiums_return(
    space: spaces.Space[Any], mode: AutoresetMode, backend: str
) -> None:
    """The pool answers for these envs, not their workers."""
    options: dict[str, Any] = {"masked": 0.3, "backend": backend, "faults": "restart"}
    compare([lambda: SpaceEnv(space)] * NUM_ENVS, SyncVectorEnv, 60, mode, **options)


# -- wrappers --------------------------------------------------------------------------------------------


def cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", render_mode="rgb_array")


def _scale(envs: VectorEnv) -> VectorEnv:
    return wrappers.VectorizeTransformObservation(
        envs,
        gymnasium.wrappers.TransformObservation,
        func=lambda obs: obs * 2,
        observation_space=spaces.Box(-np.inf, np.inf, (4,)),
    )


# Every wrapper, and every mode with a wrapper that accepts it.
WRAPPERS: dict[str, tuple[AutoresetMode, Callable[[VectorEnv], VectorEnv]]] = {
    "of rewards and infos": (
        AutoresetMode.SAME_STEP,
        lambda envs: wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(wrappers.ClipReward(envs, 0.0, 0.5))),
    ),
    "of observations": (AutoresetMode.DISABLED, lambda envs: _scale(wrappers.FlattenObservation(envs))),
    "of all": (
        AutoresetMode.NEXT_STEP,
        lambda envs: wrappers.DictInfoToList(
            wrappers.RecordEpisodeStatistics(wrappers.NormalizeReward(wrappers.NormalizeObservation(envs)))
        ),
    ),
}


@pytest.mark.parametrize(("mode", "wrap"), WRAPPERS.values(), ids=WRAPPERS.keys())
def test_wrappers_return_the_same_as_around_gymnasiums(
    mode: AutoresetMode, wrap: Callable[[VectorEnv], VectorEnv]
) -> None:
    ours, reference = (wrap(cls([cartpole] * NUM_ENVS, autoreset_mode=mode)) for cls in (AsyncVectorEnv, SyncVectorEnv))
    gymnasium_originals.compare(ours, reference, 60)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_statistics_keep_the_episodes_of_masked_out_envs(mode: AutoresetMode) -> None:
    """Gymnasium's vector env removes the mask from the dict before the wrapper reads it."""
    envs = wrappers.RecordEpisodeStatistics(
        AsyncVectorEnv(counting(2, length=4), autoreset_mode=mode, backend="serial")
    )
    envs.reset()
    envs.step([0, 0])
    envs.step([0, 0])
    envs.reset(options={"reset_mask": np.array([True, False])})
    envs.step([0, 0])
    _, _, terminations, _, infos = envs.step([0, 0])
    assert terminations.tolist() == [False, True]
    assert infos["episode"]["l"].tolist() == [0, 4]
    envs.close()
