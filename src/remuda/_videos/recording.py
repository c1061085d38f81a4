"""record_video: puts a recorder around chosen envs of a pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
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
    """Factories of envs that are recorded: `Pool(record_video(env_fns, "videos"))`, or any face in the place of `Pool`.

    A video shows one whole episode of each chosen env, side by side: `<folder>/<name_prefix>-episode-<k>.mp4` the k-th
    of each, counted from 0. An env whose episode is over stays at its last picture, darkened, until the longest is.
    Terminal pictures are there in every autoreset mode. An episode that ends by a fault is shown as far as it came, and
    the env built anew goes on with the next number.

    Pictures are what `env.render()` returns, in the env's own process, in the chosen episodes alone: other envs are as
    they were, and the pool sends nothing more. A video is written, in a thread of the worker that was the last to get
    there, as soon as its episode is over in all chosen envs; what is complete of the others, when the pool is closed.
    Closing waits for that.

    Args:
        env_fns: Of all the envs of a pool. They are returned in their order. Those chosen must make Gymnasium's envs
            with `render_mode="rgb_array"`, whose pictures are (height, width, 3) uint8.
        folder: Made, if there is none. Videos of the same name are overwritten.
        envs: The first so many, or the numbers of the envs.
        episode_trigger: Every n-th episode, from 0 on; or a function that says of an episode's number whether to record
            it, the same in every process; None: Gymnasium's `capped_cubic_video_schedule`.
        name_prefix: What the names of the files begin with.
        fps: Pictures a second; None: what `env.metadata["render_fps"]` says, or 30.

    Raises:
        ValueError, TypeError: An argument that cannot be. What an env cannot do is told when it is built or rendered.
        MissingFrameworkError: moviepy is not installed.
        OSError: The folder cannot be made.
    """
    check_moviepy()  # Gymnasium's schedule, the default trigger, cannot be imported without it
    factories = check_env_fns(env_fns)
    chosen = _chosen(envs, len(factories))
    trigger = _trigger(episode_trigger)
    if os.sep in name_prefix:
        raise ValueError(f"expected a name_prefix without {os.sep!r}, got {name_prefix!r}")
    if fps is not None and not fps > 0:
        raise ValueError(f"expected fps above 0, or None, got {fps!r}")
    video_folder = VideoFolder(Path(folder).absolute(), new_scratch(folder), chosen, trigger, name_prefix, fps)
    return [_Recorded(fn, video_folder, i) if i in chosen else fn for i, fn in enumerate(factories)]


def check_moviepy() -> None:
    """Raises MissingFrameworkError without it."""
    if not _has_moviepy():
        raise MissingFrameworkError("videos need moviepy, which is not installed: pip install moviepy", name="moviepy")


def _has_moviepy() -> bool:
    try:
        return find_spec("moviepy") is not None
    except ValueError:  # it is being kept away
        return False


class RecordedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env whose chosen episodes are recorded."""

    __slots__ = ("_recorder",)  # not among the attributes: it is no part of the env's state

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
            self._recorder.end()  # as far as it came: who builds the env anew closes this one, which drops the rest
            raise
        self._recorder.step(stepped[2] or stepped[3])
        return stepped

    def close(self) -> None:
        try:
            self.env.close()
        finally:
            self._recorder.close()


class _Recorded:
    """A factory of recorded envs."""

    def __init__(self, env_fn: EnvFn, video_folder: VideoFolder, env_id: int) -> None:
        self._env_fn, self._video_folder, self._env_id = env_fn, video_folder, env_id

    def __call__(self) -> RecordedEnv:
        env = self._env_fn()
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"expected a gymnasium.Env to record, got {type(env).__name__}; choose others by envs=")
        if env.render_mode != "rgb_array":
            env.close()
            raise ValueError(
                f"expected an env with render_mode='rgb_array' to record, got {env.render_mode!r}: "
                "gymnasium.make(..., render_mode='rgb_array'); or choose others by envs="
            )
        return RecordedEnv(env, self._video_folder, self._env_id)


class EveryNth:
    """Episodes 0, n, 2n, ..."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __call__(self, episode: int) -> bool:
        return episode % self._n == 0


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
    """The numbers of the envs that are recorded."""
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
