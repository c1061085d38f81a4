"""Whether envs can be batched, in ALF's words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from remuda import SpaceMismatchError
from remuda.alf.worker import Description

_SAME: tuple[tuple[str, str], ...] = (
    ("action_spec", "action spec"),
    ("time_step_spec", "time_step_spec"),
    ("env_info_spec", "env_info_spec"),
    ("batch_size", "batch_size"),
    ("batched", "batched"),
)


def check_same(envs: Sequence[Description]) -> None:
    """Raise ``ValueError`` for envs that differ in their specs, bounds included, or are no array-based ones."""
    if tensor_based := [i for i, env in enumerate(envs) if env.is_tensor_based]:
        raise ValueError(f"All environments must be array-based environments. These are not: {tensor_based}")
    for attribute, words in _SAME:
        _check_one(words, [attrgetter(attribute)(env) for env in envs])


def _check_one(words: str, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        if value != values[0]:
            raise ValueError(f"All environments must have the same {words}. Env {i} has {value}, env 0 {values[0]}")


def told_by_alf(error: SpaceMismatchError) -> ValueError:
    """What the engine found out first: specs of different structures, shapes or dtypes."""
    words = "action spec" if error.kind == "action" else _kind_of_time_step(error.spaces)
    return ValueError(f"All environments must have the same {words}. {error}")


def _kind_of_time_step(spaces: Sequence[Any]) -> str:
    """What of the time steps differs; the space of each is a tuple of its fields."""
    first = spaces[0]
    odd = next(space for space in spaces if space != first)
    if odd[0] != first[0]:  # the step type, of which there is one for each row
        return "batched" if math.prod(odd[0].shape) == math.prod(first[0].shape) else "batch_size"
    *step, action = (odd[i] != first[i] for i in range(min(_NEVER_EMPTY, len(odd), len(first))))
    if action:
        return "action spec"
    return "time_step_spec" if any(step) else "env_info_spec"


_NEVER_EMPTY = 5  # step type, reward, discount, observation, previous action; those that may be come after
