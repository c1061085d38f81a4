"""Checks the arguments of `AsyncVectorEnv` before it starts or sends anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

REFUSED = {
    "autoreset": "use autoreset_mode=",
    "start_method": "use context=",
    "observation_space": "use observation_mode=(batched space, single space)",
}
"""Options of the pool with another name here, and what to use instead."""


def refuse_worker(worker: Callable[..., None] | None) -> None:
    """Raise ``NotImplementedError`` if Gymnasium's argument ``worker`` is given: the loop of Gymnasium's worker."""
    if worker is not None:
        raise NotImplementedError(
            "expected worker=None: a worker function serves an env over a multiprocessing pipe, a shared "
            "multiprocessing buffer and an error queue, and remuda's workers have none of these. To change what "
            "reset or step do, wrap the env in its env_fn (gymnasium.Wrapper); to change when envs are reset, "
            "pass autoreset_mode=; to run code of your own beside the env, give a wrapper a method and use "
            "call(); to keep the worker function, use gymnasium.vector.AsyncVectorEnv."
        )


def check_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> None:
    """Raise ``ValueError`` if ``seed`` is a sequence that does not have exactly one seed for each env."""
    if seed is not None and not isinstance(seed, (int, np.integer)) and len(seed) != num_envs:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={len(seed)}."
        )


def check_ids(env_ids: Sequence[int], num_envs: int) -> None:
    """Raise ``ValueError`` if ``env_ids`` is empty, or if an id belongs to no env."""
    unknown = [i for i in env_ids if not isinstance(i, (int, np.integer)) or not 0 <= i < num_envs]
    if not env_ids or unknown:
        got = unknown[0] if unknown else "none"
        raise ValueError(f"expected `env_ids` to be some of 0, ..., {num_envs - 1}, got {got}.")


def seeds_of(env_ids: Sequence[int], seed: int | Sequence[int | None] | None) -> int | Sequence[int | None] | None:
    """Select the seeds for some envs from ``seed``, which is for all envs."""
    return seed if seed is None or isinstance(seed, (int, np.integer)) else [seed[i] for i in env_ids]


def split_mask(
    options: dict[str, Any] | None, num_envs: int
) -> tuple[npt.NDArray[np.bool_] | None, dict[str, Any] | None]:
    """Return (reset mask, other options) of a reset's options. The mask is None if all envs are reset.

    Raises:
        TypeError: the mask is not a bool array.
        ValueError: the mask has another shape, or no True.
    """
    if options is None or "reset_mask" not in options:
        return None, options
    others = dict(options)
    mask = others.pop("reset_mask")
    must = "`options['reset_mask']` must"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{must} be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"{must} have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{must} have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(f"{must} contain a boolean array with at least one True value, got reset_mask={mask}")
    return (None if mask.all() else mask), others


def check_iterable(actions: Any) -> None:
    """Raise ``TypeError`` if ``actions`` is a single action instead of one for each env."""
    try:
        iter(actions)
    except TypeError:
        raise TypeError(f"Unable to iterate over the following elements: {actions}") from None
