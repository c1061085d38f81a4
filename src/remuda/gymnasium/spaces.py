"""Checks that the envs of a vector env agree on their spaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from gymnasium import Space, spaces

AnySpace: TypeAlias = Space[Any]
ObservationMode: TypeAlias = str | tuple[AnySpace, AnySpace]


def check_observation_mode(mode: ObservationMode) -> None:
    """Raise an error unless ``mode`` is 'same', 'different' or a pair of spaces.

    Raises:
        TypeError: it is a pair, but not of spaces.
        ValueError: it is anything else.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(
                f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch "
            f"observation space, actual got {mode}"
        )


def check_observation_spaces(mode: ObservationMode, single: AnySpace, reported: Iterable[AnySpace]) -> None:
    """Raise ``RuntimeError`` if a space differs from ``single``. Bounds may differ unless ``mode`` is 'same'."""
    if mode == "same":
        if any(space != single for space in reported):
            raise RuntimeError(
                "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments observation "
                "spaces are not equivalent. If this is intentional, use `observation_mode='different'` instead."
            )
        return
    from gymnasium.spaces.utils import is_space_dtype_shape_equiv  # Gymnasium 0.29, which has no modes, lacks it

    if not all(is_space_dtype_shape_equiv(space, single) for space in reported):
        raise RuntimeError(
            "AsyncVectorEnv(..., observation_mode='different' or custom space) however the sub-environment's "
            "observation spaces do not share a common shape and dtype."
        )


def check_equal(single: AnySpace, reported: Iterable[AnySpace]) -> None:
    """Raise ``RuntimeError`` if an env has another observation space than ``single``, which Gymnasium 0.29 requires."""
    if any(space != single for space in reported):
        raise RuntimeError(
            f"Some environments have an observation space different from `{single}`. "
            "In order to batch observations, the observation spaces from all environments must be equal."
        )


def check_action_spaces(single: AnySpace, reported: Iterable[AnySpace]) -> None:
    """Raise ``RuntimeError`` if an env has another action space than ``single``."""
    if any(space != single for space in reported):
        raise RuntimeError(
            f"Some environments have an action space different from `{single}`. "
            "In order to batch actions, the action spaces from all environments must be equal."
        )


def is_custom(space: AnySpace) -> bool:
    """Whether ``space``, or a space in it, is of a class that is not Gymnasium's."""
    parts = space.values() if isinstance(space, spaces.Dict) else space if isinstance(space, spaces.Tuple) else ()
    modules = [one.__module__ for one in type(space).__mro__ if one is not Space]
    return any(map(is_custom, parts)) or not any(module.startswith("gymnasium.spaces.") for module in modules)
