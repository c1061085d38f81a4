"""Checks the arguments of `evaluate` and `collect` before anything is started or sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from remuda import Part, Pool, PoolOptions
from remuda._factories import check_env_fns
from remuda._keywords import check_keywords
from remuda._progress import bar
from remuda._videos.recording import check_moviepy

Seeds: TypeAlias = "Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]"

_SEEDS = 2**63  # seeds are int64 in results


def check_count(name: str, value: Any, most: int | None = None) -> int:
    """Checks that an argument is an int from 1 up, or from 1 to `most`, and returns it."""
    upper = "up" if most is None else f"to {most}"
    if not _is_int(value) or value < 1 or (most is not None and value > most):
        kind = ValueError if isinstance(value, (int, float)) else TypeError
        raise kind(f"expected {name} to be an int from 1 {upper}, got {value!r}")
    return int(value)


def check_seed(seed: Any) -> int | None:
    if seed is not None and (not _is_int(seed) or seed < 0):
        raise ValueError(f"expected seed to be an int from 0 up, or None, got {seed!r}")
    return None if seed is None else int(seed)


def check_seeds(seeds: Any, episodes: int) -> list[int] | None:
    """Checks that there is a seed for each episode, and returns the seeds; None for None."""
    each = _one_for_each("seeds", seeds, episodes)
    for episode, seed in enumerate(each or ()):
        if not _is_int(seed) or not 0 <= seed < _SEEDS:
            raise ValueError(f"expected seeds[{episode}] to be an int from 0 to 2**63 - 1, got {seed!r}")
    return each


def check_reset_options(options: Any, episodes: int) -> list[Mapping[str, Any] | None] | None:
    """Checks that there are options, or None, for the reset of each episode, and returns them; None for None."""
    each = _one_for_each("reset_options", options, episodes)
    for episode, one in enumerate(each or ()):
        if one is not None and not isinstance(one, Mapping):
            raise TypeError(f"expected reset_options[{episode}] to be a dict or None, got {one!r}")
    return each


def _one_for_each(name: str, values: Any, episodes: int) -> list[Any] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
        raise TypeError(f"expected {name} to be a list with one entry for each episode, got {values!r}")
    if len(values) != episodes:
        raise ValueError(f"expected {name} to have an entry for each of {episodes} episodes, got {len(values)}")
    return list(values)


def check_progress(progress: Any) -> None:
    """Raises MissingFrameworkError if a progress bar is requested and rich is not installed."""
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"expected progress to be True, False or None, got {progress!r}")
    if progress:
        bar.rich_progress("", stays=False)


def check_videos(folder: str | os.PathLike[str] | None, episodes: Iterable[int], num_episodes: int) -> frozenset[int]:
    """Checks the arguments for videos, and returns the episodes to record. If there is no folder, there are none.

    Raises:
        TypeError: The folder is not a path, or the episodes are not numbers.
        ValueError: An episode does not exist.
        MissingFrameworkError: moviepy is not installed.
        OSError: The folder cannot be made.
    """
    expected = f"expected video_episodes to be numbers of episodes from 0 to {num_episodes - 1}"
    if isinstance(episodes, str) or not isinstance(episodes, Iterable):
        raise TypeError(f"{expected}, got {episodes!r}; write [{episodes!r}] for one of them")
    chosen = list(episodes)
    if not all(map(_is_int, chosen)):
        raise TypeError(f"{expected}, got {chosen}")
    if folder is None or not chosen:
        return frozenset()
    _check_folder(Path(folder))
    if unknown := sorted({episode for episode in chosen if episode not in range(num_episodes)}):
        raise ValueError(f"expected video_episodes from 0 to {num_episodes - 1}, got {unknown}")
    check_moviepy()
    return frozenset(int(episode) for episode in chosen)


def _check_folder(folder: Path) -> None:
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"expected video_folder to be a folder, or one that can be made, got the file {there}")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"expected video_folder to be a folder that can be written to, got {folder} in {there}")


def check_envs(envs: Any, options: PoolOptions, keywords: Iterable[str]) -> Pool | list[Callable[[], Any]]:
    """Returns the pool in which `evaluate` plays, or the factories of envs for a new pool.

    Args:
        envs: A pool, or factories.
        options: The options of the pool to make.
        keywords: The other keywords of `evaluate`.
    """
    if isinstance(getattr(envs, "pool", None), Part):
        raise TypeError(f"expected a Pool or factories, got {type(envs).__name__}: give its `pool`")
    if isinstance(envs, Part) and not isinstance(envs, Pool):
        raise TypeError("expected a whole pool, got a part of one, whose other envs would play nothing")
    if isinstance(envs, Pool):
        if options:
            raise TypeError(f"expected no options for a pool that there is already, got {sorted(options)}")
        _check_suits(lambda option: getattr(envs, option))
        return envs
    check_keywords("evaluate", options, [*keywords, *PoolOptions.__annotations__])
    factories = check_env_fns(envs, "envs", or_else="a remuda.Pool, or ")
    _check_suits(options.get)
    return factories


def _check_suits(value_of: Callable[[str], Any]) -> None:
    """Raises ValueError if an option prevents `evaluate` from assigning certain episodes to each env."""
    wrong = {
        "spares": value_of("spares"),
        "vector_size": value_of("vector_size") is not None,
        'autoreset="background"': value_of("autoreset") == "background",
        'seeding="per_episode"': value_of("seeding") == "per_episode",
    }
    for option, is_on in wrong.items():
        if is_on:
            raise ValueError(f"expected a pool without {option}, since here each env plays episodes that are its own")


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
