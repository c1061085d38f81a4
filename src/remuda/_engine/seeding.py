"""Seeds and reset options, one for each env."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def seeds_for(seed: int | Sequence[int | None] | None, env_ids: Sequence[int]) -> list[int | None]:
    """Gymnasium's rule: an int seeds env i with seed + i; a sequence has one seed for each of `env_ids`.

    Raises:
        ValueError, TypeError: A sequence of another length, or a seed that is no int.
    """
    if seed is None:
        return [None] * len(env_ids)
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + env_id for env_id in env_ids]
    if not isinstance(seed, (Sequence, np.ndarray)) or isinstance(seed, str):
        raise TypeError(f"expected seed to be an int, None, or a sequence with one for each env, got {seed!r}")
    seeds = list(seed)
    if len(seeds) != len(env_ids):
        raise ValueError(f"expected {len(env_ids)} seeds, one for each env to reset, got {len(seeds)}")
    for env_id, one in zip(env_ids, seeds, strict=True):
        if one is not None and not isinstance(one, (int, np.integer)):
            raise TypeError(f"expected an int or None as the seed of env {env_id}, got {one!r}")
    return [None if one is None else int(one) for one in seeds]


def seeds_with_spares(seed: int | Sequence[int | None] | None, num_slots: int, num_envs: int) -> list[int | None]:
    """As `seeds_for` all `num_envs`; a sequence may leave out those beyond `num_slots`, which then get none."""
    if isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, str) and len(seed) == num_slots:
        return seeds_for(seed, range(num_slots)) + [None] * (num_envs - num_slots)
    return seeds_for(seed, range(num_envs))


def options_for(
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None, env_ids: Sequence[int]
) -> list[dict[str, Any] | None]:
    """A mapping goes to every env; a sequence has one mapping (or None) for each of `env_ids`."""
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


def reset_arguments(seed: int | None, options: dict[str, Any] | None) -> dict[str, Any] | None:
    """The keyword arguments of `env.reset`; None when there are none."""
    arguments: dict[str, Any] = {}
    if seed is not None:
        arguments["seed"] = seed
    if options is not None:
        arguments["options"] = options
    return arguments or None
