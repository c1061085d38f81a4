"""Gymnasium's vector wrappers return the same around our vector env and around Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers
from gymnasium_originals import compare
from pool_envs import counting

from remuda.gymnasium import AsyncVectorEnv

NUM_ENVS = 3


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
    compare(ours, reference, 60)


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


def test_array_conversion() -> None:
    pytest.importorskip("array_api_compat")
    torch = pytest.importorskip("torch")
    envs = wrappers.NumpyToTorch(AsyncVectorEnv([cartpole] * 2))
    obs, _ = envs.reset(seed=1)
    assert isinstance(obs, torch.Tensor)
    held = obs.clone()
    for _ in range(8):
        envs.step(torch.tensor([0, 1]))
    assert torch.equal(obs, held)
    envs.close()
