"""Finds the shape of an env's rewards."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from remuda._worker.own_attribute import own_attribute
from remuda.errors import InvalidEnvError


def reward_shape_of(env: Any) -> tuple[int, ...]:
    """Returns the shape of the rewards that an env or vector env declares: (k,), or () for numbers.

    It is the shape of the `reward_space` of the env or of its outermost wrapper that has one. Wrappers that turn the
    vectors of an inner env into numbers usually have none. MO-Gymnasium's `LinearReward` is one of these, and each
    `gymnasium.RewardWrapper` that is not MO-Gymnasium's is assumed to be one. If a face hosts the env, it returns ().

    Raises:
        InvalidEnvError: The space is a Box with several axes.
    """
    layer = None if hasattr(type(env), "hosts_env") else env
    while layer is not None:
        if isinstance(space := _space_of(layer), spaces.Box):
            if len(space.shape) > 1:
                raise InvalidEnvError(f"expected a reward_space of shape () or (k,), got {space} of {env!r}")
            return space.shape
        if _makes_numbers(layer):
            return ()
        layer = own_attribute(layer, "env")
    return ()


def _space_of(layer: Any) -> Any:
    """Returns the `reward_space` of this layer itself. Wrappers of older versions forward to the inner env."""
    if any("reward_space" in vars(base) for base in type(layer).__mro__):
        return getattr(layer, "reward_space", None)
    return own_attribute(layer, "reward_space")


def _makes_numbers(layer: Any) -> bool:
    if type(layer).__module__.startswith("mo_gymnasium."):
        return type(layer).__name__ == "LinearReward"
    return isinstance(layer, gymnasium.RewardWrapper)
