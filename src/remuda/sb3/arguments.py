"""Converts arguments of Stable-Baselines3's vector env to those of a pool."""

from __future__ import annotations

from typing import Any

from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from remuda import InvalidActionError


def batch_actions(space: Space[Any], actions: Any, num_envs: int) -> Any:
    """Batches actions: converts a sequence with a dict or tuple for each env to an element of the batched space.

    Raises:
        InvalidActionError: The number of actions is not that of envs, or an action does not fit.
    """
    each = list(actions)
    if len(each) != num_envs:
        raise InvalidActionError(f"expected {num_envs} actions, one for each env, got {len(each)}")
    try:
        return concatenate(space, each, create_empty_array(space, num_envs))  # type: ignore[arg-type]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidActionError(f"expected actions of {space}, got {each!r} ({error!r})") from error
