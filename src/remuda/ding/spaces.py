"""The pool's spaces for the observations and actions of DI-engine's envs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces


class Anything(Space[Any]):
    """A space of all picklable objects, for values that DI-engine does not check."""

    def __init__(self) -> None:
        super().__init__(shape=None, dtype=None)

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    def __hash__(self) -> int:
        return hash(Anything)


def layout_space(space: Any) -> Space[Any]:
    """Returns the space for the rows in shared memory: boxes or flat dicts of boxes. Other spaces become `Anything`.

    Args:
        space: A space of ``gym`` or of ``gymnasium``, or any other object that an env has as its observation space.
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping) and parts and all(map(_is_box, parts.values())):
        return spaces.Dict({key: _unbounded(part) for key, part in parts.items()})
    return _unbounded(space) if _is_box(space) else Anything()


def _is_box(space: Any) -> bool:
    if any(not hasattr(space, name) for name in ("low", "high", "shape", "dtype")):
        return False
    return space.shape is not None and np.dtype(space.dtype).kind in "iuf"


def _unbounded(space: Any) -> Space[Any]:
    """Returns a box without its bounds, because the envs of a manager may differ in their bounds."""
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, tuple(space.shape), dtype.type)
    info = np.iinfo(dtype)
    return spaces.Box(int(info.min), int(info.max), tuple(space.shape), dtype.type)
