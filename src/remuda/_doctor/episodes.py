"""Trials that play episodes, and play them again like a pool with ``faults="resume"``. Each trial runs in a worker."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from remuda._crash.episode_start import describe_start, load_start, repeat_start
from remuda._doctor.trials import EnvFn, seed_shared
from remuda._training.tasks.fingerprint import Fingerprint

PROCESS_GENERATORS = {"random", "np.random"}
Row: TypeAlias = dict[str, str]  # by part of the row: the digest of its value


@dataclass
class Episode:
    """An episode that was played.

    Attributes:
        start: The data of `describe_start`, from before the reset.
        rows: The rows of the reset and of the steps. The row that ends the episode has its flags only, because its info
            may have the time that the episode took.
        generators: By name: the digests of the random generators of the env and its process, after the episode.
        drawn_from: The names of those that have changed since before the reset, or before the build of the env if this
            is its first episode.
        changed_after: The step with an observation that the next step has changed in place; None if there is none.
    """

    start: bytes
    rows: list[Row] = field(default_factory=list)
    generators: dict[str, str] = field(default_factory=dict)
    drawn_from: set[str] = field(default_factory=set)
    changed_after: int | None = None


def episodes(
    _: Any, env_fn: EnvFn, shared: int, seeds: Sequence[int | None], steps: int, seconds: float
) -> list[Episode]:
    """Plays an episode of at most `steps` steps for each seed, all in one env. None: its random numbers continue.

    `shared`: the number that seeds the generators of the process, which only some envs draw from.
    """
    seed_shared(shared)
    played, end, before = list[Episode](), time.monotonic() + seconds, _generators(None)
    env = env_fn()
    at_build = {name for name, state in _generators(None).items() if before[name] != state}
    for n, seed in enumerate(seeds):
        arguments = {} if seed is None else {"seed": seed}
        episode = Episode(describe_start(env, arguments)[1])
        seed_shared(shared + n)
        before = _generators(env)
        _play(env, episode, env.reset(**arguments), n, steps, end)
        episode.generators = _generators(env)
        episode.drawn_from = {name for name, state in episode.generators.items() if before.get(name) != state}
        played.append(episode)
    played[0].drawn_from |= at_build
    env.close()
    return played


def play_again(_: Any, env_fn: EnvFn, shared: int, n: int, played: Episode) -> list[Row]:
    """Plays the n-th episode of `episodes` again, in an env of its own. Returns its rows.

    Raises ValueError if it is not known how the episode began.
    """
    seed_shared(shared)
    env, episode = env_fn(), Episode(played.start)
    seed_shared(shared + n)
    _play(env, episode, repeat_start(env, load_start(played.start)), n, len(played.rows) - 1, float("inf"))
    env.close()
    return episode.rows


def _play(env: Any, episode: Episode, begun: tuple[Any, Any], n: int, steps: int, end: float) -> None:
    space = copy.deepcopy(env.action_space)  # the env may draw from its own
    space.seed(n)
    obs, info = begun
    episode.rows.append(_row(obs, info))
    for step in range(steps):
        before, digest = obs, _digest(obs)
        obs, reward, terminated, truncated, info = env.step(space.sample())
        if episode.changed_after is None and _digest(before) != digest:
            episode.changed_after = step
        flags = {"termination": _digest(bool(terminated)), "truncation": _digest(bool(truncated))}
        if terminated or truncated:
            episode.rows.append(flags)
            break
        episode.rows.append({**_row(obs, info), "reward": _digest(reward), **flags})
        if time.monotonic() > end:
            break


def _row(obs: Any, info: Any) -> Row:
    return {part: _digest(value) for part, value in [*_parts("observation", obs), *_parts("info", info)]}


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items())
    else:
        yield name, value


def _digest(value: Any) -> str:
    return Fingerprint().of([value])


def _generators(env: Any) -> dict[str, str]:
    found = {"random": _digest(random.getstate()), "np.random": _digest(np.random.get_state())}
    while env is not None:
        for name, value in getattr(env, "__dict__", {}).items():
            if (state := _state(value)) is not None:
                found[f"{name} of {type(env).__name__}"] = _digest(state)
        env = getattr(env, "__dict__", {}).get("env")
    return found


def _state(value: Any) -> Any:
    match value:
        case np.random.Generator():
            return value.bit_generator.state
        case np.random.RandomState():
            return value.get_state()
        case random.Random():
            return value.getstate()
    return None
