"""Checks that envs can be batched, and raises ALF's errors if not."""

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
"""Attributes that must be equal, with their names in ALF's errors."""


def check_same(described: Sequence[Any]) -> None:
    """Raise ``ValueError`` if the envs' specs or bounds differ, or if an env is based on tensors."""
    if tensor_based := [i for i, env in enumerate(described) if env.is_tensor_based]:
        raise ValueError(f"All environments must be array-based environments. These are not: {tensor_based}")
    for attribute, words in _SAME.items():
        first = getattr(described[0], attribute)
        for i, env in enumerate(described):
            if (value := getattr(env, attribute)) != first:
                raise ValueError(f"All environments must have the same {words}. Env {i} has {value}, env 0 {first}")


def in_alfs_words(error: SpaceMismatchError) -> ValueError:
    """Converts the engine's error about specs of different structure, shape or dtype to ALF's."""
    words = "action spec" if error.kind == "action" else _kind_of_time_step(error.spaces)
    return ValueError(f"All environments must have the same {words}. {error}")


def _kind_of_time_step(spaces: Sequence[Any]) -> str:
    """Returns ALF's name for the part of the time steps in which envs differ. `spaces`: a tuple space for each env."""
    first = spaces[0]
    odd = next(space for space in spaces if space != first)
    if odd[0] != first[0]:  # the first space is that of step types, which have only the batch axes
        return "batched" if math.prod(odd[0].shape) == math.prod(first[0].shape) else "batch_size"
    *step, action = (odd[i] != first[i] for i in range(min(_NEVER_EMPTY, len(odd), len(first))))
    if action:
        return "action spec"
    return "time_step_spec" if any(step) else "env_info_spec"


_NEVER_EMPTY = 5  # a time step's leading fields, never empty: step type, reward, discount, observation, previous action
