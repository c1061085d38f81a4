"""Seeds and reset options, one for each env."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from remuda._wire import by_value

T = TypeVar("T")


def seeds_for(seed: int | Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    """Returns the seed of each env by Gymnasium's rule: an int seeds env i with seed + i; a sequence has one for each.

    Raises:
        ValueError, TypeError: A sequence of another length, or a seed that is not an int.
    """
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + env_id for env_id in env_ids]
    return _seed_of_each(seed, env_ids)


def entropy_for(seed: int | Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    """Returns, for each env, the int from which it derives the seeds of its episodes. A sequence has one for each env.

    Raises:
        ValueError, TypeError: See `seeds_for`; or a seed is below 0.
    """
    given = _seed_of_each([int(seed)] * len(env_ids) if isinstance(seed, (int, np.integer)) else seed, env_ids)
    for env_id, one in zip(env_ids, given, strict=True):
        if one is not None and one < 0:
            raise ValueError(f"expected a seed from 0 up for env {env_id}, got {one} (seeding='per_episode')")
    return given


def _one_each(values: Any, env_ids: Sequence[int], kind: Any, name: str, values_are: str, value_is: str) -> list[Any]:
    """Returns a value of the class `kind`, or None, for each env. The texts are those of the argument in errors."""
    if values is None:
        return [None] * len(env_ids)
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
        raise TypeError(f"expected {name} to be {value_is}, None, or a sequence with one for each env, got {values!r}")
    listed = list(values)
    if len(listed) != len(env_ids):
        raise ValueError(f"expected {len(env_ids)} {values_are}, one for each env to reset, got {len(listed)}")
    for env_id, one in zip(env_ids, listed, strict=True):
        if one is not None and not isinstance(one, kind):
            raise TypeError(f"expected {value_is} or None as the {name} of env {env_id}, got {one!r}")
    return listed


def _seed_of_each(seeds: Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    each = _one_each(seeds, env_ids, (int, np.integer), "seed", "seeds", "an int")
    return [None if one is None else int(one) for one in each]


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
    seeds = _seed_of_each(seed, range(num_envs))
    return seeds[:num_slots], seeds[num_slots:]


def options_for(
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, env_ids: Sequence[int]
) -> list[dict[str, Any] | None]:
    """Returns the options of each env: a mapping goes to every env; a sequence has one (or None) for each."""
    if isinstance(options, Mapping):
        return [dict(options)] * len(env_ids)
    each = _one_each(options, env_ids, Mapping, "options", "reset options", "a dict")
    return [None if one is None else dict(one) for one in each]


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
            pickles[id(one)] = pickled(by_value.dumps, one, one, env_id)
    return {env_id: pickles[id(one)] for env_id, one in each.items()}


def pickled(dumps: Callable[[Any], T], arguments: Any, options: Any, env_id: int) -> T:
    """Pickles the arguments of a reset. They contain `options`, which an error shows."""
    try:
        return dumps(arguments)
    except Exception as error:
        shown = reprlib.repr(options)
        raise TypeError(
            f"expected reset options that can be pickled, got {shown} for env {env_id} ({error})"
        ) from error


def reset_arguments(seed: Any, options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the keyword arguments for `env.reset`; None if there are none."""
    arguments: dict[str, Any] = {}
    if seed is not None:
        arguments["seed"] = seed
    if options is not None:
        arguments["options"] = options
    return arguments or None
