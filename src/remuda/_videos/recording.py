"""record_video: attaches recorders to chosen envs of a pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from remuda._factories import check_env_fns
from remuda._system.machine import is_installed
from remuda._videos.attaching import attach
from remuda._videos.episodes import Episodes
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

    A video shows one whole episode of one env. `<folder>/<name_prefix>-env-<i>-episode-<k>.mp4` shows the k-th episode
    of env i, counted from 0, with its terminal picture in every autoreset mode. An episode that an exception ends is
    shown up to that point. An episode that has not ended when the pool is closed has no video. Rebuilt envs continue
    the count.

    `env.render()` makes the pictures, in the env's own process, in the chosen episodes only. Other envs are not
    changed, and the pool sends no additional data. ffmpeg writes each video, in a process of its own.

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
    chosen = range(min(envs, len(factories))) if isinstance(envs, int) else list(envs)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(len(factories))):
        raise ValueError(f"expected envs to be different numbers from 0 to {len(factories) - 1}, got {envs!r}")
    if os.sep in name_prefix:
        raise ValueError(f"expected a name_prefix without {os.sep!r}, got {name_prefix!r}")
    trigger = _trigger(episode_trigger)
    for i in chosen:
        episodes = Episodes(Path(folder).absolute(), f"{name_prefix}-env-{i}", trigger).start()
        factories[i] = partial(_recorded, factories[i], episodes, fps)
    return factories


def check_moviepy() -> None:
    """Raises MissingFrameworkError if moviepy is not installed."""
    if not is_installed("moviepy"):
        raise MissingFrameworkError("videos need moviepy, which is not installed: pip install moviepy", name="moviepy")


def _recorded(env_fn: EnvFn, episodes: Episodes, fps: float | None) -> gymnasium.Env[Any, Any]:
    """Builds an env that records its episodes."""
    env = env_fn()
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"expected a gymnasium.Env to record, got {type(env).__name__}; choose others by envs=")
    if env.render_mode != "rgb_array":
        env.close()
        raise ValueError(
            f"expected an env with render_mode='rgb_array' to record, got {env.render_mode!r}: "
            "gymnasium.make(..., render_mode='rgb_array'); or choose others by envs="
        )
    attach(env, fps, episodes.next_video)
    return env


def _trigger(given: int | Callable[[int], bool] | None) -> Callable[[int], bool]:
    if given is None:
        from gymnasium.utils.save_video import capped_cubic_video_schedule

        return capped_cubic_video_schedule
    if callable(given):
        return given
    if not isinstance(given, int) or given < 1:
        raise ValueError(f"expected episode_trigger to be an int from 1 up, a function or None, got {given!r}")
    return lambda episode: episode % given == 0
