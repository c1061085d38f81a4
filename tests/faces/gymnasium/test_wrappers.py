"""Gymnasium's vector wrappers around ours and around theirs see the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers
from gymnasium_face_envs import EchoEnv, SpaceEnv, assert_identical
from pairs import covering

from remuda.gymnasium import AsyncVectorEnv

MODES = list(AutoresetMode)
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


WRAPPERS: dict[str, Callable[[VectorEnv], VectorEnv]] = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "FlattenObservation": wrappers.FlattenObservation,
    "ClipReward": lambda envs: wrappers.ClipReward(envs, 0.0, 0.5),
    "DictInfoToList": wrappers.DictInfoToList,
    "VectorizeTransformObservation": _scale,
    "all": lambda envs: wrappers.DictInfoToList(
        wrappers.RecordEpisodeStatistics(wrappers.NormalizeReward(wrappers.NormalizeObservation(envs)))
    ),
}
REFUSED = {
    *itertools.product(("NormalizeObservation", "all"), (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)),
    *itertools.product(("FlattenObservation", "VectorizeTransformObservation"), (AutoresetMode.SAME_STEP,)),
}


def without_times(step: Any) -> Any:
    """RecordEpisodeStatistics puts the wall clock into the infos."""
    *rest, infos = step
    for info in infos if isinstance(infos, list) else [infos]:
        info.get("episode", {}).pop("t", None)
    return *rest, infos


# Every wrapper, and every mode with one of those that do not refuse it. RecordEpisodeStatistics loses the mask of a
# reset: see the next test.
WORKING = covering(
    [
        (name, mode)
        for name, mode in itertools.product(WRAPPERS, reversed(MODES))
        if (name, mode) not in REFUSED | {("RecordEpisodeStatistics", AutoresetMode.DISABLED)}
    ],
    lambda cell: cell[0],
    lambda cell: cell[1],
)


@pytest.mark.parametrize(("name", "mode"), WORKING)
def test_wrappers_see_the_same(name: str, mode: AutoresetMode) -> None:
    ours, theirs = (
        WRAPPERS[name](cls([cartpole] * NUM_ENVS, autoreset_mode=mode)) for cls in (AsyncVectorEnv, SyncVectorEnv)
    )
    assert_identical(ours.reset(seed=1), theirs.reset(seed=1))
    theirs.action_space.seed(2)
    for i in range(60):
        actions = theirs.action_space.sample()
        our_step, their_step = ours.step(actions), theirs.step(actions)
        done = their_step[2] | their_step[3]
        assert_identical(without_times(our_step), without_times(their_step), f"step {i}")
        if mode is AutoresetMode.DISABLED and done.any():
            both = (envs.reset(options={"reset_mask": done.copy()}) for envs in (ours, theirs))
            assert_identical(*both, f"reset after step {i}")
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
def test_statistics_keep_the_episodes_that_a_mask_leaves_alone(mode: AutoresetMode) -> None:
    """The original takes the mask out of the dict before the wrapper looks at it."""
    envs = wrappers.RecordEpisodeStatistics(AsyncVectorEnv([lambda: EchoEnv(length=4)] * 2, autoreset_mode=mode))
    envs.reset()
    envs.step([0, 0])
    envs.step([0, 0])
    envs.reset(options={"reset_mask": np.array([True, False])})
    envs.step([0, 0])
    _, _, terminations, _, infos = envs.step([0, 0])
    assert terminations.tolist() == [False, True]
    assert infos["episode"]["l"].tolist() == [0, 4]
    envs.close()


@pytest.mark.filterwarnings("ignore:.*(Overwriting existing videos|autoreset mode is same-step)")
@pytest.mark.parametrize("mode", MODES)
def test_record_video(mode: AutoresetMode, tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    envs = wrappers.RecordVideo(
        AsyncVectorEnv([cartpole] * 2, autoreset_mode=mode),
        str(tmp_path),
        step_trigger=lambda step: step == 0,
        video_length=5,
    )
    envs.reset(seed=1)
    for _ in range(8):
        envs.step([0, 1])
    envs.close()
    assert list(tmp_path.glob("*.mp4"))


def test_dict_info_to_list_of_infos_of_every_kind() -> None:
    fns = [lambda: SpaceEnv(spaces.Discrete(9))] * NUM_ENVS
    ours, theirs = (wrappers.DictInfoToList(cls(fns)) for cls in (AsyncVectorEnv, SyncVectorEnv))
    assert_identical(ours.reset(seed=1), theirs.reset(seed=1))
    for i in range(40):
        assert_identical(ours.step([0] * NUM_ENVS), theirs.step([0] * NUM_ENVS), f"step {i}")
    ours.close()
    theirs.close()


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
