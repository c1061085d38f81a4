"""Seeds and reset options, one for each env."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from remuda._wire import by_value


def seeds_for(seed: int | Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    """Returns the seed of each env by Gymnasium's rule: an int seeds env i with seed + i; a sequence has one for each.

    Raises:
        ValueError, TypeError: A sequence of another length, or a seed that is not an int.
    """
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + env_id for env_id in env_ids]
    return _one_each(seed, env_ids)


def entropy_for(seed: int | Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    """Returns, for each env, the int from which it derives the seeds of its episodes. A sequence has one for each env.

    Raises:
        ValueError, TypeError: See `seeds_for`; or a seed is below 0.
    """
    given = _one_each([seed] * len(env_ids) if isinstance(seed, (int, np.integer)) else seed, env_ids)
    for env_id, one in zip(env_ids, given, strict=True):
        if one is not None and one < 0:
            raise ValueError(f"expected a seed from 0 up for env {env_id}, got {one} (seeding='per_episode')")
    return given


def _one_each(seeds: Sequence[int | np.integer[Any] | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    if seeds is None:
        return [None] * len(env_ids)
    if not isinstance(seeds, (Sequence, np.ndarray)) or isinstance(seeds, str):
        raise TypeError(f"expected seed to be an int, None, or a sequence with one for each env, got {seeds!r}")
    listed = list(seeds)
    if len(listed) != len(env_ids):
        raise ValueError(f"expected {len(env_ids)} seeds, one for each env to reset, got {len(listed)}")
    for env_id, one in zip(env_ids, listed, strict=True):
        if one is not None and not isinstance(one, (int, np.integer)):
            raise TypeError(f"expected an int or None as the seed of env {env_id}, got {one!r}")
    return [None if one is None else int(one) for one in listed]


def split_seed(
    seed: int | Sequence[int | None] | None, num_slots: int, num_envs: int
) -> tuple[int | Sequence[int | None] | None, int | Sequence[int | None] | None]:
    """Returns (seeds of slots, seeds of spares). If a sequence has seeds for the slots only, spares get none.

    Raises:
        ValueError, TypeError: A sequence of another length, or a seed that is not an int.
    """
    if seed is None or isinstance(seed, (int, np.integer)):
        return seed, seed
    if isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, str) and len(seed) == num_slots:
        return seed, None
    seeds = _one_each(seed, range(num_envs))
    return seeds[:num_slots], seeds[num_slots:]


def options_for(
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, env_ids: Sequence[int]
) -> list[dict[str, Any] | None]:
    """Returns the options of each env: a mapping goes to every env; a sequence has one (or None) for each."""
    if options is None:
        return [None] * len(env_ids)
    if isinstance(options, Mapping):
        return [dict(options)] * len(env_ids)
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise TypeError(f"expected options to be a dict, None, or a sequence with one for each env, got {options!r}")
    if len(options) != len(env_ids):
        raise ValueError(f"expected {len(env_ids)} reset options, one for each env to reset, got {len(options)}")
    for env_id, one in zip(env_ids, options, strict=True):
        if one is not None and not isinstance(one, Mapping):
            raise TypeError(f"expected a dict or None as the options of env {env_id}, got {one!r}")
    return [None if one is None else dict(one) for one in options]


def pickled_options(
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, env_ids: Sequence[int]
) -> dict[int, bytes | None]:
    """Returns the options of each env, pickled now, so that later changes of the dicts have no effect.

    Raises:
        ValueError, TypeError: See `options_for`; or options cannot be pickled.
    """
    each = dict(zip(env_ids, options_for(options, env_ids), strict=True))
    pickles: dict[int, bytes | None] = {id(None): None}  # pickles each dict once, because envs often share one
    for env_id, one in each.items():
        if one is not None and id(one) not in pickles:
            try:
                pickles[id(one)] = by_value.dumps(one, protocol=5)
            except Exception as error:
                raise TypeError(
                    f"expected reset options that can be pickled, got {reprlib.repr(one)} for env {env_id} ({error})"
                ) from error
    return {env_id: pickles[id(one)] for env_id, one in each.items()}


def reset_arguments(seed: Any, options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the keyword arguments for `env.reset`; None if there are none."""
    arguments: dict[str, Any] = {}
    if seed is not None:
        arguments["seed"] = seed
    if options is not None:
        arguments["options"] = options
    return arguments or None
