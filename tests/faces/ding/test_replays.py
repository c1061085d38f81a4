"""``enable_save_replay`` writes files with DI-engine's names and pictures, but numbered by env."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from ding_face_envs import PAIRS, DriftEnv, ding_envs, ours, settled, unlaunched
from imageio_ffmpeg import get_ffmpeg_exe

from remuda import FaultPolicy

pytestmark = pytest.mark.filterwarnings("ignore")

gym = importlib.import_module("gym")  # imported after DI-engine, under its warning filters
BaseEnv, BaseEnvManager = ding_envs.BaseEnv, ding_envs.BaseEnvManager
SIZE = 32
STEP = 20  # the difference in gray between two steps
MANAGERS = [pair[0] for pair in PAIRS.values()]


class Gray(gym.Env):
    """Renders the number of its steps as a gray value. Its episodes have `length` steps."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    reward_range = (-1, 1)
    render_mode = None
    spec = gym.envs.registration.EnvSpec("Gray-v0", entry_point="nowhere:Gray")

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, **_: Any) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        if action == 1:
            raise RuntimeError("the brush is broken")
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == self.length, {}

    def render(self, mode: str = "rgb_array") -> Any:
        return np.full((SIZE, SIZE, 3), 10 + STEP * self.steps, np.uint8)


class GymnasiumGray(gymnasium.Env[Any, Any]):
    """Renders the steps of another env like `Gray`, but its `render` takes no mode, as in Gymnasium."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, env: DriftEnv) -> None:
        self.env = env

    def render(self) -> Any:
        return np.full((SIZE, SIZE, 3), 10 + STEP * self.env.steps, np.uint8)


class Plain(DriftEnv):
    """Has no `enable_save_replay` of its own and wraps an env that can render."""

    enable_save_replay = BaseEnv.enable_save_replay

    def __init__(self) -> None:
        super().__init__(length=2)
        self._env = GymnasiumGray(self)


def wrapped(length: int) -> Callable[[], Any]:
    return lambda: ding_envs.DingEnvWrapper(Gray(length))


def record(
    paths: str | list[str],
    env_fns: Any,
    steps: int,
    manager_cls: Any = ours.SyncSubprocessEnvManager,
    action: Callable[[int], Any] = lambda _: 0,
    **changes: Any,
) -> None:
    """Steps a manager that saves replays, all envs at once, and closes it."""
    manager = unlaunched(env_fns, manager_cls, **changes)
    manager.enable_save_replay(paths)
    manager.launch()
    for n in range(steps):
        actions = {env_id: np.array(action(n)) for env_id in settled(manager).ready_obs_id}
        manager.step(list(actions.values()) if manager_cls is ours.SubprocessEnvManagerV2 else actions)
    settled(manager).close()


def grays(path: Path) -> list[int]:
    """Reads a video and returns the env's number of steps in each picture."""
    raw = [get_ffmpeg_exe(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    data = np.frombuffer(subprocess.run(raw, capture_output=True, check=True).stdout, np.uint8)
    return [round((float(picture.mean()) - 10) / STEP) for picture in data.reshape(-1, SIZE * SIZE)]


def found(folder: Path) -> dict[str, list[int]]:
    return {path.name: grays(path) for path in sorted(folder.glob("*.mp4"))}


@pytest.mark.parametrize("manager_cls", MANAGERS)
def test_each_episode_is_a_file_with_the_pictures_of_ding(manager_cls: Any, tmp_path: Path) -> None:
    fns = [wrapped(2), wrapped(3)]
    record(str(tmp_path / "ours"), fns, 6, manager_cls)
    mine = found(tmp_path / "ours")
    assert mine == {
        **{f"rl-video-0-episode-{k}.mp4": [0, 1, 2] for k in range(3)},
        **{f"rl-video-1-episode-{k}.mp4": [0, 1, 2, 3] for k in range(2)},
    }

    original = BaseEnvManager(fns, BaseEnvManager.default_config())
    original.enable_save_replay(str(tmp_path / "original"))
    original.launch()
    for _ in range(6):
        original.step({env_id: np.array(0) for env_id in original.ready_obs})
    original.close()
    files = found(tmp_path / "original")
    names = [re.sub(r"video-\d+", "video-N", name) for name in files]
    whole = [(name, pictures) for name, pictures in zip(names, files.values(), strict=True) if pictures[-1] > 0]
    assert sorted(whole) == sorted((re.sub(r"video-\d", "video-N", name), pictures) for name, pictures in mine.items())


def test_in_place_resets_and_gymnasium_envs_are_recorded(tmp_path: Path) -> None:
    record(str(tmp_path), [Plain], 4, reset_inplace=True)
    assert found(tmp_path) == {f"rl-video-0-episode-{k}.mp4": [0, 1, 2] for k in range(2)}


def test_a_rebuilt_env_continues_the_episode_numbers(tmp_path: Path) -> None:
    options = {"faults": FaultPolicy("restart", backoff=0)}
    record(str(tmp_path), [wrapped(3)], 5, action=lambda n: int(n == 1), remuda=options)
    assert found(tmp_path) == {"rl-video-0-episode-0.mp4": [0, 1], "rl-video-0-episode-1.mp4": [0, 1, 2, 3]}


def test_each_env_has_its_own_folder_without_the_episodes_that_measure_workers(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    record([str(folder) for folder in folders], [wrapped(2)] * 2, 2, remuda={"num_workers": "auto"})
    for i, folder in enumerate(folders):
        assert found(folder) == {f"rl-video-{i}-episode-0.mp4": [0, 1, 2]}
