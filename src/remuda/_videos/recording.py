"""record_video: puts a recorder around chosen envs of a pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from remuda._factories import check_env_fns
from remuda._videos.recorder import recorder_of
from remuda._videos.scratch_folder import new_scratch
from remuda._videos.video_folder import VideoFolder
from remuda.errors import MissingFrameworkError

EnvFn = Callable[[], Any]


def record_video(
    env_fns: Sequence[EnvFn],
    folder: str | os.PathLike[str],
    *,
    envs: int | Iterable[int] = 4,
    episode_trigger: int | Callable[[int], bool] | None = None,
    name_prefix: str = "remuda",
    fps: float | None = None,
) -> list[EnvFn]:
    """Returns factories of recorded envs: `Pool(record_video(env_fns, "videos"))`, or a face instead of `Pool`.

    A video shows one whole episode of each chosen env, side by side: `<folder>/<name_prefix>-episode-<k>.mp4` shows the
    k-th episode of each, counted from 0. When an episode is over, its last picture stays, darkened, until the longest
    episode is over. Terminal pictures are shown in every autoreset mode. An episode that a fault ends is shown up to
    that point, and the rebuilt env continues with the next number.

    `env.render()` makes the pictures, in the env's own process, in the chosen episodes only. Other envs are not
    changed, and the pool sends no additional data. The worker of the env that ends the episode last writes the video,
    in a thread. When the pool is closed, the remaining videos are written with the episodes that are over; `close`
    waits for them.

    Args:
        env_fns: The factories of all envs of a pool. The result has the same order. The chosen ones must make
            Gymnasium's envs with `render_mode="rgb_array"` and pictures of (height, width, 3) uint8.
        folder: The folder, which is made if it does not exist. Videos of the same name are overwritten.
        envs: The number of envs, from the first on, or the numbers of the envs.
        episode_trigger: An int n: every n-th episode, from 0 on. A function: it returns whether to record the episode
            with a given number, the same in every process. None: Gymnasium's `capped_cubic_video_schedule`.
        name_prefix: The beginning of the files' names.
        fps: The pictures per second; None: `env.metadata["render_fps"]`, or 30.

    Raises:
        ValueError, TypeError: An argument is invalid. Faults of an env are raised when it is built or rendered.
        MissingFrameworkError: moviepy is not installed.
        OSError: The folder cannot be made.
    """
    check_moviepy()  # checked first, because the default trigger, Gymnasium's schedule, needs moviepy
    factories = check_env_fns(env_fns)
    chosen = _chosen(envs, len(factories))
    trigger = _trigger(episode_trigger)
    if os.sep in name_prefix:
        raise ValueError(f"expected a name_prefix without {os.sep!r}, got {name_prefix!r}")
    if fps is not None and not fps > 0:
        raise ValueError(f"expected fps above 0, or None, got {fps!r}")
    video_folder = VideoFolder(Path(folder).absolute(), new_scratch(folder), chosen, trigger, name_prefix, fps)
    return [partial(_recorded, fn, video_folder, i) if i in chosen else fn for i, fn in enumerate(factories)]


def check_moviepy() -> None:
    """Raises MissingFrameworkError if moviepy is not installed."""
    try:
        is_installed = find_spec("moviepy") is not None
    except ValueError:  # raised if `sys.modules` has None for moviepy, which prevents its import
        is_installed = False
    if not is_installed:
        raise MissingFrameworkError("videos need moviepy, which is not installed: pip install moviepy", name="moviepy")


class RecordedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that records the episodes of an env."""

    __slots__ = ("_recorder",)  # outside `__dict__`, because the recorder is not part of the env's state

    def __init__(self, env: Any, video_folder: VideoFolder, env_id: int) -> None:
        super().__init__(env)
        self._recorder = recorder_of(env, video_folder, env_id)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        begun = self.env.reset(**options)
        self._recorder.begin()
        return begun

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            stepped = self.env.step(action)
        except BaseException:
            self._recorder.end()  # keeps the episode's pictures for the video, because `close` would remove them
            raise
        self._recorder.step(stepped[2] or stepped[3])
        return stepped

    def close(self) -> None:
        try:
            self.env.close()
        finally:
            self._recorder.close()


def _recorded(env_fn: EnvFn, video_folder: VideoFolder, env_id: int) -> RecordedEnv:
    """Builds an env and wraps it in a `RecordedEnv`."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"expected a gymnasium.Env to record, got {type(env).__name__}; choose others by envs=")
    if env.render_mode != "rgb_array":
        env.close()
        raise ValueError(
            f"expected an env with render_mode='rgb_array' to record, got {env.render_mode!r}: "
            "gymnasium.make(..., render_mode='rgb_array'); or choose others by envs="
        )
    return RecordedEnv(env, video_folder, env_id)


@dataclass(frozen=True)
class EveryNth:
    """Chooses the episodes 0, n, 2n, ..."""

    n: int

    def __call__(self, episode: int) -> bool:
        return episode % self.n == 0


def _trigger(given: int | Callable[[int], bool] | None) -> Callable[[int], bool]:
    if given is None:
        from gymnasium.utils.save_video import capped_cubic_video_schedule

        return capped_cubic_video_schedule
    if callable(given):
        return given
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
        raise ValueError(f"expected episode_trigger to be an int from 1 up, a function or None, got {given!r}")
    return EveryNth(int(given))


def _chosen(envs: int | Iterable[int], count: int) -> tuple[int, ...]:
    """Returns the numbers of the envs that are recorded."""
    if count == 0:
        raise ValueError("expected env_fns of one env or more, got none")
    if isinstance(envs, bool):
        raise TypeError(f"expected envs to be an int or numbers of envs, got {envs!r}")
    if isinstance(envs, (int, np.integer)):
        if envs < 1:
            raise ValueError(f"expected envs to be at least 1, got {envs}")
        return tuple(range(min(int(envs), count)))
    chosen = tuple(int(env_id) for env_id in envs)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(count)):
        raise ValueError(f"expected envs to be different numbers from 0 to {count - 1}, got {list(chosen)}")
    return chosen
