"""Actions on their way to a worker: pickled, since DI-engine's envs take whatever a policy gives them."""

from __future__ import annotations

from typing import Any

import numpy as np


class SmallArray:
    """Pickles an array of numbers in half the time that NumPy takes for one so small; a plain array arrives.

    It is seen where an action is reported, and shows itself as the array.
    """

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (self.array.dtype.char, self.array.shape, self.array.tobytes())

    def __repr__(self) -> str:
        return repr(self.array)


def rebuild(char: str, shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    """Return the array, which the env may write to."""
    array: np.ndarray[Any, Any] = np.ndarray(shape, char, bytearray(data))
    return array


def quick(action: Any) -> Any:
    """Return what to send for this action."""
    if type(action) is np.ndarray and action.size <= _SMALL and action.dtype.kind in "biuf" and action.dtype.isnative:
        return SmallArray(action)
    return action


_SMALL = 64  # above, what is fixed about pickling an array does not count
