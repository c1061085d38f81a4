"""remuda.record_video: videos of whole episodes, with every autoreset mode, with faults, and with the faces."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from imageio_ffmpeg import get_ffmpeg_exe
from pairs import each

from remuda import EnvError, FaultPolicy, Pool, evaluate, record_video
from remuda._wire.autoreset import AUTORESET_MODES

SIZE = 32
STEP = 20  # the difference in gray between two steps


class Gray(gymnasium.Env[Any, Any]):
    """Renders the number of its steps as a gray value, and observes how often it was rendered.

    Episodes have `length` steps. `act` is called at each action of 9.
    """

    observation_space = spaces.Box(0, 1000, (1,), np.int64)
    action_space = spaces.Discrete(10)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, length: int = 3, mode: str | None = "rgb_array", height: int = SIZE, act: Any = None) -> None:
        self.length, self.render_mode, self._height, self._act, self.rendered = length, mode, height, act, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.array([self.rendered]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 9:
            self._act()
        self.steps += 1
        return np.array([self.rendered]), 1.0, self.steps == self.length, False, {}

    def render(self) -> Any:
        self.rendered += 1
        return np.full((self._height, SIZE, 3), 10 + STEP * self.steps, np.uint8)


def of_length(*lengths: int) -> list[Any]:
    return [lambda length=length: Gray(length) for length in lengths]


serial = partial(Pool, backend="serial")


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


def grays(path: Path) -> list[int]:
    """Returns for each frame the number of steps that it shows."""
    return [round((float(frame[4:-4, 4:-4].mean()) - 10) / STEP) for frame in frames(path)]


def videos(folder: Path) -> dict[str, list[int]]:
    return {path.stem.removeprefix("remuda-"): grays(path) for path in sorted(folder.glob("*.mp4"))}


def test_a_video_shows_a_whole_episode_of_a_chosen_env(tmp_path: Path) -> None:
    env_fns = record_video(of_length(2, 9, 5), tmp_path / "new", envs=[0, 2], episode_trigger=lambda k: k == 1)
    with Pool(env_fns, num_workers=2) as pool:
        play(pool, 12)
    assert videos(tmp_path / "new") == {"env-0-episode-1": [0, 1, 2], "env-2-episode-1": [0, 1, 2, 3, 4, 5]}


@pytest.mark.parametrize("autoreset", AUTORESET_MODES)
def test_the_video_has_the_last_picture_in_every_mode(tmp_path: Path, autoreset: Any) -> None:
    with serial(record_video(of_length(3), tmp_path, episode_trigger=1), autoreset=autoreset) as pool:
        play(pool, 3)
    assert videos(tmp_path) == {"env-0-episode-0": [0, 1, 2, 3]}


def test_an_int_as_trigger_records_every_nth_episode(tmp_path: Path) -> None:
    env_fns = record_video(of_length(1, 1), tmp_path, envs=1, episode_trigger=3, name_prefix="ppo")
    with serial(env_fns, autoreset="same_step") as pool:
        play(pool, 8)
    assert list(videos(tmp_path)) == [f"ppo-env-0-episode-{episode}" for episode in (0, 3, 6)]


def test_unrecorded_episodes_are_not_rendered_and_other_envs_are_not_changed(tmp_path: Path) -> None:
    given = of_length(2, 2)
    env_fns = record_video(given, tmp_path, envs=[1], episode_trigger=lambda k: k == 1)
    assert env_fns[0] is given[0]
    with serial(env_fns, autoreset="same_step") as pool:
        play(pool, 2)
        assert pool.get_attr("rendered") == [0, 1]  # the first picture of the second episode
        play(pool, 4)
        assert pool.get_attr("rendered") == [0, 1]


def test_an_episode_cut_off_by_a_reset_is_shown_and_one_cut_off_by_close_is_not(tmp_path: Path) -> None:
    with serial(record_video(of_length(9), tmp_path, episode_trigger=1)) as pool:
        play(pool, 2)
        play(pool, 3)
    assert videos(tmp_path) == {"env-0-episode-0": [0, 1, 2]}


@pytest.mark.parametrize("accident", [accidents.raise_value_error, accidents.kill_myself])
def test_the_numbers_continue_after_a_fault(accident: Any, tmp_path: Path) -> None:
    """An episode that an exception ends is shown up to the exception."""
    raises = accident is accidents.raise_value_error
    env_fns = record_video([lambda: Gray(4, act=accident)], tmp_path, episode_trigger=lambda k: raises or k > 0)
    with Pool(env_fns, faults=FaultPolicy("restart", backoff=0)) as pool:
        pool.reset(seed=0)
        for action in (0, 9, 0, 0, 0, 0, 0):
            pool.step([action])
    whole = {"env-0-episode-1": [0, 1, 2, 3, 4]}
    assert videos(tmp_path) == ({"env-0-episode-0": [0, 1], **whole} if raises else whole)


def test_a_recorded_env_is_not_measured(tmp_path: Path) -> None:
    with Pool(record_video(of_length(2, 2), tmp_path, episode_trigger=lambda k: k == 0)) as pool:
        assert pool.choice is not None and "it draws in its steps" in pool.choice.reason
        play(pool, 3)
    assert videos(tmp_path) == {"env-0-episode-0": [0, 1, 2], "env-1-episode-0": [0, 1, 2]}


def test_pictures_of_odd_size_are_enlarged_by_a_row(tmp_path: Path) -> None:
    with serial(record_video([lambda: Gray(1, height=SIZE - 1)], tmp_path)) as pool:
        play(pool, 2)
    (first, *_) = frames(tmp_path / "remuda-env-0-episode-0.mp4")
    assert first.shape == (SIZE, SIZE, 3)


def test_states_of_recorded_envs_fit_other_envs(tmp_path: Path) -> None:
    with serial(record_video(of_length(5, 5), tmp_path, envs=1, episode_trigger=1)) as pool:
        play(pool, 1)
        states = pool.get_state(state_fns="attributes")
        play(pool, 2)
        pool.set_state(states[::-1])
        assert pool.get_attr("steps") == [1, 1]
        pool.step(np.zeros(2, int))
        assert pool.get_attr("rendered") == [1, 2]  # env 0 is still recorded, and env 1 is not


def test_the_numbers_continue_in_a_second_pool_and_begin_again_in_a_second_call(tmp_path: Path) -> None:
    for pools in (2, 1):
        env_fns = record_video(of_length(1), tmp_path, episode_trigger=lambda k: k != 0)
        for _ in range(pools):
            with serial(env_fns, autoreset="disabled") as pool:
                play(pool, 1)
    assert list(videos(tmp_path)) == ["env-0-episode-1"]


def test_a_video_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "remuda-env-0-episode-0.mp4").mkdir()
    with serial(record_video(of_length(1), tmp_path, episode_trigger=lambda k: k == 0)) as pool:
        play(pool, 2)
    assert "remuda-env-0-episode-0.mp4 could not be made" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_does_not_delay_the_end_of_a_video(tmp_path: Path) -> None:
    """ffmpeg ends only when the child has closed its copy of the pipe."""
    with serial(record_video(of_length(2), tmp_path, episode_trigger=1)) as pool:
        play(pool, 1)
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            os.read(read_end, 1)  # until the parent has closed the pool
            os._exit(0)
        pool.step([0])
    assert videos(tmp_path) == {"env-0-episode-0": [0, 1, 2]}
    os.close(write_end)
    os.close(read_end)
    os.waitpid(pid, 0)


def act(obs: Any) -> Any:
    return np.zeros(len(obs), int)


def patched(env: Any) -> list[str]:
    """Returns the methods of the env that are replaced while it is recorded."""
    return sorted(vars(env).keys() & {"reset", "step"})


@each(autoreset=["next_step", "same_step", "disabled"], backend=["process", "serial"])
def test_videos_of_an_evaluation_show_whole_episodes(autoreset: Any, backend: Any, tmp_path: Path) -> None:
    shown = [0, 1, 5, 7]
    with Pool(of_length(3, 2, 4), autoreset=autoreset, backend=backend, num_workers=2) as pool:
        result = evaluate(act, pool, episodes=8, video_folder=tmp_path, video_episodes=shown)
        assert pool.render()[0].shape == (SIZE, SIZE, 3)
        pool.reset()  # recording has ended
        assert pool.apply(patched) == [[]] * 3
    files = [tmp_path / f"evaluation-episode-{episode}.mp4" for episode in shown]
    assert sorted(result.videos) == sorted(tmp_path.iterdir()) == files
    assert [grays(file) for file in files] == [list(range(result.lengths[episode] + 1)) for episode in shown]


class FailsInLongEpisodes(Gray):
    """An env that raises in step 2 of a long episode, if its factory is still to do so. `reset_options` has lengths."""

    def __init__(self, fails: list[int]) -> None:
        super().__init__()
        self._fails = fails

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.length = options["length"]
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.length == 5 and self.steps == 2 and self._fails:
            self._fails.pop()
            accidents.raise_value_error()
        return super().step(action)


@pytest.mark.parametrize("fails", [[], [1]])
def test_an_env_that_is_rebuilt_after_its_video_records_no_other_episode(fails: list[int], tmp_path: Path) -> None:
    options: dict[str, Any] = {"episodes": 3, "reset_options": [{"length": length} for length in (2, 5, 3)]}
    faults = FaultPolicy("restart", backoff=0.0, renew_every=None if fails else 1)
    envs = [lambda: FailsInLongEpisodes(fails)]
    evaluation = evaluate(
        act, envs, **options, video_folder=tmp_path, video_episodes=[0], backend="thread", faults=faults
    )
    assert grays(*evaluation.videos) == [0, 1, 2] and evaluation.lengths.tolist() == [2, 5, 3] and not fails


@pytest.mark.parametrize("autoreset", ["same_step", "disabled"])
def test_the_video_of_a_cut_off_episode_of_an_evaluation_shows_its_repetition(autoreset: Any, tmp_path: Path) -> None:
    die = accidents.once(tmp_path / "died", accidents.kill_myself, skip=2)
    options: Any = {"autoreset": autoreset, "num_workers": 2, "faults": FaultPolicy("restart", backoff=0)}
    options |= {"episodes": 6, "video_folder": tmp_path / "videos", "video_episodes": range(6)}
    result = evaluate(lambda obs: np.full(len(obs), 9), [lambda: Gray(4, act=die)] * 2, **options)
    assert result.faults
    assert [grays(path) for path in sorted(result.videos)] == [[0, 1, 2, 3, 4]] * 6


def test_an_evaluation_drops_unfinished_videos_and_may_play_in_recorded_envs(tmp_path: Path) -> None:
    env_fns = record_video(of_length(3, 3), tmp_path / "training", envs=[0], episode_trigger=1)
    options: dict[str, Any] = {"episodes": 4, "video_folder": tmp_path / "evaluation", "video_episodes": range(4)}
    with Pool(env_fns, num_workers=2) as pool:
        with pytest.raises(ValueError, match="broken"):
            evaluate(accidents.raise_value_error, pool, **options)
        assert list((tmp_path / "evaluation").iterdir()) == []
        assert pool.apply(patched, env_ids=[1]) == [[]]
        result = evaluate(act, pool, **options)
        assert [grays(path) for path in sorted(result.videos)] == [[0, 1, 2, 3]] * 4
        play(pool, 3)
    assert list(videos(tmp_path / "training").values()) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": [0, 2]}, r"expected envs to be different numbers from 0 to 1, got \[0, 2\]"),
        ({"envs": [0, 0]}, "expected envs to be different numbers"),
        ({"episode_trigger": 0}, "expected episode_trigger to be an int from 1 up"),
        ({"name_prefix": "a/b"}, "expected a name_prefix without '/'"),
        ({"folder": "file/videos"}, r"expected folder to be a directory .*file/videos' \(Not a directory"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / arguments.pop("folder", "new")
    with pytest.raises((ValueError, NotADirectoryError), match=message):
        record_video(of_length(1, 1), folder, **arguments)
    assert not (tmp_path / "new").exists()


class Blind(Gray):
    def render(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("env_fn", "message"),
    [
        (lambda: Gray(mode=None), "expected an env with render_mode='rgb_array' to record, got None"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), "expected a gymnasium.Env to record"),
        (Blind, r"expected render\(\) to return a picture of shape \(height, width, 3\)"),
    ],
)
def test_envs_that_cannot_render_are_refused(tmp_path: Path, env_fn: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message), serial(record_video([env_fn], tmp_path)) as pool:
        assert env_fn is Blind, "expected the others to fail in the build"
        pool.reset()
