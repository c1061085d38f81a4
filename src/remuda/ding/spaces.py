"""The spaces that observations and actions of DI-engine's envs travel in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces


class Anything(Space[Any]):
    """A space of all that can be pickled: DI-engine checks no actions and, without shared memory, no observations."""

    def __init__(self) -> None:
        super().__init__(shape=None, dtype=None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raises ``NotImplementedError``: the env's own space can be sampled."""
        raise NotImplementedError("expected nobody to sample this space: use the manager's action_space")

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    def __hash__(self) -> int:
        return hash(Anything)

    def __repr__(self) -> str:
        return "Anything()"


def layout_space(space: Any) -> Space[Any]:
    """Returns the space that rows are laid out for: boxes and flat dicts of boxes go through shared memory.

    Args:
        space: A space of ``gym`` or of ``gymnasium``, or anything else that an env calls its observation space.
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
    """Returns a box without bounds: they do not affect the layout, and envs of one manager may differ in them."""
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, tuple(space.shape), dtype.type)
    info = np.iinfo(dtype)
    return spaces.Box(int(info.min), int(info.max), tuple(space.shape), dtype.type)
