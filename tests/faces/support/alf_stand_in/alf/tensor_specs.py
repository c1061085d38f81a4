"""Descriptions of expected tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class TensorSpec:
    """Shape and dtype."""

    def __init__(self, shape: Any, dtype: Any = torch.float32) -> None:
        self.shape = tuple(shape)
        self.dtype: torch.dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype

    @classmethod
    def is_bounded(cls) -> bool:
        return False

    @property
    def dtype_str(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self).keys() == vars(other).keys() and self._equals(other)

    def _equals(self, other: Any) -> bool:
        return bool(self.shape == other.shape and self.dtype == other.dtype)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r})"


class BoundedTensorSpec(TensorSpec):
    """A tensor spec with inclusive bounds."""

    def __init__(self, shape: Any, dtype: Any = torch.float32, minimum: Any = 0, maximum: Any = 1) -> None:
        super().__init__(shape, dtype)
        self.minimum = np.array(minimum, self.dtype_str)
        self.maximum = np.array(maximum, self.dtype_str)

    @classmethod
    def is_bounded(cls) -> bool:
        return True

    def _equals(self, other: Any) -> bool:
        bounds = ((self.minimum, other.minimum), (self.maximum, other.maximum))
        return super()._equals(other) and all(np.allclose(*pair) for pair in bounds)

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self.shape}, dtype={self.dtype!r}, minimum={self.minimum!r}, "
            f"maximum={self.maximum!r})"
        )
