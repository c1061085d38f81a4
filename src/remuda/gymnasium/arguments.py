"""Options with another name than in a pool, and checks of reset masks and actions before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space

REFUSED = {
    "autoreset": "use autoreset_mode=",
    "start_method": "use context=",
    "observation_space": "use observation_mode=(batched space, single space)",
}
"""Options of the pool with another name here, and what to use instead."""


WORDS = {
    "autoreset": "autoreset_mode",
    "start_method": "context",
    "'next_step'": "'NextStep'",
    "'same_step'": "'SameStep'",
    "'disabled'": "'Disabled'",
}
"""Gymnasium's words for options and values of the pool, for `in_words_of`."""


def is_old(infos: str | None) -> bool:
    """Return whether ``infos`` asks for Gymnasium 0.29's conventions. Raise ``ValueError`` if it is invalid."""
    if infos not in (None, "0.29"):
        raise ValueError(f"expected infos=None or '0.29', got {infos!r}")
    return infos is not None


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


def is_other_float(actions: Any, space: Space[Any]) -> bool:
    """Return whether ``actions`` is an array of floats of another dtype than ``space``."""
    return isinstance(actions, np.ndarray) and actions.dtype.kind == "f" and actions.dtype != space.dtype


def check_iterable(actions: Any) -> None:
    """Raise ``TypeError`` if ``actions`` is a single action instead of one for each env."""
    try:
        iter(actions)
    except TypeError:
        raise TypeError(f"Unable to iterate over the following elements: {actions}") from None
