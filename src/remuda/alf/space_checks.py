"""Checks that envs can be batched, with ALF's errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from remuda import SpaceMismatchError

_SAME = {
    "action_spec": "action spec",
    "time_step_spec": "time_step_spec",
    "env_info_spec": "env_info_spec",
    "batch_size": "batch_size",
    "batched": "batched",
}
"""Attributes that must be equal, with ALF's words for them."""


def check_same(described: Sequence[Any]) -> None:
    """Raise ``ValueError`` for envs that differ in their specs, bounds included, or that are based on tensors."""
    if tensor_based := [i for i, env in enumerate(described) if env.is_tensor_based]:
        raise ValueError(f"All environments must be array-based environments. These are not: {tensor_based}")
    for attribute, words in _SAME.items():
        first = getattr(described[0], attribute)
        for i, env in enumerate(described):
            if (value := getattr(env, attribute)) != first:
                raise ValueError(f"All environments must have the same {words}. Env {i} has {value}, env 0 {first}")


def in_alfs_words(error: SpaceMismatchError) -> ValueError:
    """Returns ALF's error for specs of different structures, shapes or dtypes, which the engine finds first."""
    words = "action spec" if error.kind == "action" else _kind_of_time_step(error.spaces)
    return ValueError(f"All environments must have the same {words}. {error}")


def _kind_of_time_step(spaces: Sequence[Any]) -> str:
    """Returns ALF's words for the part of time steps that differs; the space of each is a tuple of its fields."""
    first = spaces[0]
    odd = next(space for space in spaces if space != first)
    if odd[0] != first[0]:  # the step type, of which there is one for each row
        return "batched" if math.prod(odd[0].shape) == math.prod(first[0].shape) else "batch_size"
    *step, action = (odd[i] != first[i] for i in range(min(_NEVER_EMPTY, len(odd), len(first))))
    if action:
        return "action spec"
    return "time_step_spec" if any(step) else "env_info_spec"


_NEVER_EMPTY = 5  # step type, reward, discount, observation, previous action; fields that may be empty follow
