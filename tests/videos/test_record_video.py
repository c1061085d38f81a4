"""remuda.record_video: grids of whole episodes, with every autoreset mode, with faults, and with the faces."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from imageio_ffmpeg import get_ffmpeg_exe

import remuda
from remuda import EnvError, FaultPolicy, MissingFrameworkError, Pool, record_video

SIZE = 32
STEP = 20  # the difference in gray between two steps


class Gray(gymnasium.Env[Any, Any]):
    """Renders the number of its steps as a gray value, and observes how often it was rendered. Episodes have `length`
    steps."""

    observation_space = spaces.Box(0, 1000, (1,), np.int64)
    action_space = spaces.Discrete(10)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, length: int = 3, render_mode: str | None = "rgb_array", height: int = SIZE) -> None:
        self.length, self.render_mode, self._height, self.rendered = length, render_mode, height, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.array([self.rendered]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.array([self.rendered]), 1.0, self.steps == self.length, False, {}

    def render(self) -> Any:
        self.rendered += 1
        return np.full((self._height, SIZE, 3), 10 + STEP * self.steps, np.uint8)


class Mortal(Gray):
    """Kills its worker in the third step of its second episode, once."""

    def __init__(self, marker: Path) -> None:
        super().__init__(length=4)
        self._marker, self._episodes = marker, 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._episodes += 1
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._episodes == 2 and self.steps == 2 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def of_length(*lengths: int) -> list[Any]:
    return [lambda length=length: Gray(length) for length in lengths]


def play(pool: Pool, count: int) -> None:
    pool.reset(seed=0)
    for _ in range(count):
        pool.step(np.zeros(pool.num_envs, int))


def frames(path: Path) -> list[np.ndarray[Any, Any]]:
    """Reads the frames with ffmpeg, because moviepy's reader may leave a descriptor open."""
    command = [get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    found = re.search(rb"Video: .*?, (\d+)x(\d+)[ ,].*?, (\d+) fps", done.stderr)
    assert found is not None, done.stderr
    width, height, fps = map(int, found.groups())
    assert fps == Gray.metadata["render_fps"]
    return list(np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3))


def grays(path: Path, tiles: int = 1) -> list[list[int]]:
    """Returns for each frame and tile the number of steps shown, or -1 for black, or -2 for another gray."""
    return [
        [_steps(frame[4:-4, SIZE * tile + 4 : SIZE * (tile + 1) - 4]) for tile in range(tiles)]
        for frame in frames(path)
    ]


def _steps(tile: np.ndarray[Any, Any]) -> int:
    gray = float(tile.mean())
    if gray < 3:
        return -1
    found = (gray - 10) / STEP
    return round(found) if abs(found - round(found)) < 0.2 else -2


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.mp4"))


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_video_is_a_grid_of_whole_episodes(tmp_path: Path, backend: Any) -> None:
    env_fns = record_video(of_length(2, 9, 5), tmp_path / "new", envs=[0, 2], episode_trigger=lambda k: k == 1)
    with Pool(env_fns, backend=backend, num_workers=2) as pool:
        play(pool, 12)
    assert names(tmp_path / "new") == ["remuda-episode-1.mp4"]
    shown = grays(tmp_path / "new" / "remuda-episode-1.mp4", tiles=2)
    assert [second for _, second in shown] == [0, 1, 2, 3, 4, 5]
    assert [first for first, _ in shown][:3] == [0, 1, 2]
    last = frames(tmp_path / "new" / "remuda-episode-1.mp4")[-1]
    assert last[SIZE // 2, SIZE // 2].mean() == pytest.approx((10 + 2 * STEP) / 2, abs=4)  # darkened


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "background", "disabled"])
def test_the_video_has_the_last_picture_in_every_mode(tmp_path: Path, autoreset: Any) -> None:
    with Pool(record_video(of_length(3), tmp_path, episode_trigger=1), autoreset=autoreset, num_workers=1) as pool:
        play(pool, 3)
    assert grays(tmp_path / "remuda-episode-0.mp4") == [[0], [1], [2], [3]]


def test_an_int_as_trigger_records_every_nth_episode(tmp_path: Path) -> None:
    env_fns = record_video(of_length(1, 1), tmp_path, envs=1, episode_trigger=3, name_prefix="ppo")
    with Pool(env_fns, backend="serial", autoreset="same_step") as pool:
        play(pool, 8)
    assert names(tmp_path) == [f"ppo-episode-{episode}.mp4" for episode in (0, 3, 6)]


def test_unrecorded_episodes_are_not_rendered_and_other_envs_are_not_wrapped(tmp_path: Path) -> None:
    given = of_length(2, 2)
    env_fns = record_video(given, tmp_path, envs=[1], episode_trigger=lambda k: k == 1)
    assert env_fns[0] is given[0]
    with Pool(env_fns, backend="serial", autoreset="same_step") as pool:
        play(pool, 2)
        assert pool.get_attr("rendered") == [0, 1]  # the first picture of the second episode
        play(pool, 4)
        assert pool.get_attr("rendered") == [0, 1]


def test_an_episode_cut_off_by_a_reset_is_shown_and_one_cut_off_by_close_is_not(tmp_path: Path) -> None:
    with Pool(record_video(of_length(9), tmp_path, episode_trigger=1), backend="serial") as pool:
        play(pool, 2)
        play(pool, 3)
    assert names(tmp_path) == ["remuda-episode-0.mp4"]
    assert grays(tmp_path / "remuda-episode-0.mp4") == [[0], [1], [2]]


def test_at_close_a_grid_shows_only_whole_episodes(tmp_path: Path) -> None:
    with Pool(record_video(of_length(2, 9), tmp_path, envs=2, episode_trigger=1), num_workers=2) as pool:
        play(pool, 4)
    assert names(tmp_path) == ["remuda-episode-0.mp4"]
    assert grays(tmp_path / "remuda-episode-0.mp4", tiles=2) == [[0, -1], [1, -1], [2, -1]]


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_an_episode_cut_off_by_a_death_is_shown_and_the_numbers_continue(tmp_path: Path) -> None:
    env_fns = record_video([lambda: Mortal(tmp_path / "died")], tmp_path / "videos", episode_trigger=1)
    with Pool(env_fns, autoreset="same_step", faults=FaultPolicy("restart", backoff=0)) as pool:
        play(pool, 12)
    found = {name: [first for (first,) in grays(tmp_path / "videos" / name)] for name in names(tmp_path / "videos")}
    assert found["remuda-episode-0.mp4"] == [0, 1, 2, 3, 4]
    assert found["remuda-episode-1.mp4"] == [0, 1, 2]
    assert found["remuda-episode-2.mp4"] == [0, 1, 2, 3, 4]


def test_an_episode_cut_off_by_an_exception_is_shown(tmp_path: Path) -> None:
    class Broken(Gray):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            if action == 9:
                raise ZeroDivisionError
            return super().step(action)

    env_fns = record_video([lambda: Broken(4)], tmp_path, episode_trigger=1)
    with Pool(env_fns, backend="serial", faults=FaultPolicy("restart", backoff=0)) as pool:
        pool.reset(seed=0)
        for action in (0, 9, 0, 0, 0, 0, 0):
            pool.step([action])
    assert grays(tmp_path / "remuda-episode-0.mp4") == [[0], [1]]
    assert grays(tmp_path / "remuda-episode-1.mp4") == [[0], [1], [2], [3], [4]]


def test_a_recorded_env_is_not_measured(tmp_path: Path, measured_by_default: None) -> None:
    with Pool(record_video(of_length(2, 2), tmp_path, episode_trigger=lambda k: k == 0)) as pool:
        assert pool.choice is not None and "it renders" in pool.choice.reason
        play(pool, 3)
    assert grays(tmp_path / "remuda-episode-0.mp4", tiles=2) == [[0, 0], [1, 1], [2, 2]]


def test_pictures_of_different_and_odd_sizes_are_tiled(tmp_path: Path) -> None:
    env_fns = [lambda: Gray(1, height=SIZE - 1), lambda: Gray(1, height=7), lambda: Gray(1)]
    with Pool(record_video(env_fns, tmp_path, episode_trigger=1), backend="serial") as pool:
        play(pool, 2)
    (first, *_) = frames(tmp_path / "remuda-episode-0.mp4")
    assert first.shape == (2 * SIZE, 2 * SIZE, 3)
    assert first[SIZE + 8, 8].mean() == pytest.approx(10, abs=4) and first[-1, -1].mean() < 3


def test_states_of_recorded_envs_can_be_restored(tmp_path: Path) -> None:
    with Pool(record_video(of_length(5, 5), tmp_path, envs=1, episode_trigger=1), backend="serial") as pool:
        play(pool, 1)
        states = pool.get_state(state_fns="attributes")
        play(pool, 2)
        pool.set_state(states)
        assert pool.get_attr("steps") == [1, 1]
        pool.step(np.zeros(2, int))


def test_record_video_works_with_the_gymnasium_face(tmp_path: Path) -> None:
    envs = remuda.gymnasium.AsyncVectorEnv(record_video(of_length(2, 2), tmp_path, episode_trigger=1))
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.zeros(2, int))
    envs.close()
    assert names(tmp_path) == ["remuda-episode-0.mp4"]


def test_a_second_pool_continues_the_episode_numbers(tmp_path: Path) -> None:
    env_fns = record_video(of_length(1), tmp_path, episode_trigger=1)
    for _ in range(2):
        with Pool(env_fns, backend="serial", autoreset="disabled") as pool:
            play(pool, 1)
    assert names(tmp_path) == ["remuda-episode-0.mp4", "remuda-episode-1.mp4"]


def test_a_video_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "remuda-episode-0.mp4").mkdir()
    with Pool(record_video(of_length(1), tmp_path, episode_trigger=lambda k: k == 0), backend="serial") as pool:
        play(pool, 2)
    assert "remuda-episode-0.mp4 could not be made" in caplog.text


def test_nothing_is_left_beside_the_videos(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_record_video import of_length, play
from remuda import Pool, record_video
if __name__ == "__main__":
    with Pool(record_video(of_length(2, 2), {str(tmp_path)!r}, episode_trigger=1), num_workers=2) as pool:
        play(pool, 4)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["remuda-episode-0.mp4"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"envs": [0, 2]}, ValueError, r"expected envs to be different numbers from 0 to 1, got \[0, 2\]"),
        ({"envs": [0, 0]}, ValueError, "expected envs to be different numbers"),
        ({"envs": []}, ValueError, "expected envs to be different numbers"),
        ({"envs": 0}, ValueError, "expected envs to be at least 1, got 0"),
        ({"envs": True}, TypeError, "expected envs to be an int"),
        ({"episode_trigger": 0}, ValueError, "expected episode_trigger to be an int from 1 up"),
        ({"episode_trigger": "all"}, ValueError, "expected episode_trigger to be an int from 1 up"),
        ({"name_prefix": "a/b"}, ValueError, "expected a name_prefix without '/'"),
        ({"fps": 0}, ValueError, "expected fps above 0"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        record_video(of_length(1, 1), tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_an_empty_list_of_envs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected env_fns of one env or more"):
        record_video([], tmp_path)


@pytest.mark.parametrize(
    ("env_fn", "message"),
    [
        (lambda: Gray(render_mode=None), "expected an env with render_mode='rgb_array' to record, got None"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), "expected a gymnasium.Env to record"),
    ],
)
def test_envs_that_cannot_render_are_refused_in_build(tmp_path: Path, env_fn: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        Pool(record_video([env_fn], tmp_path), backend="serial")


def test_a_render_that_returns_none_is_refused(tmp_path: Path) -> None:
    class Blind(Gray):
        def render(self) -> Any:
            return None

    with (
        Pool(record_video([Blind], tmp_path), backend="serial") as pool,
        pytest.raises(EnvError, match=r"expected render\(\) to return a picture of shape \(height, width, 3\)"),
    ):
        pool.reset()


def test_without_moviepy_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(MissingFrameworkError, match="pip install moviepy"):
        record_video(of_length(1), tmp_path / "new")
    assert not (tmp_path / "new").exists()
