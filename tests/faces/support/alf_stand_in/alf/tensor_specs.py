"""Descriptions of expected tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass
class TensorSpec:
    """Shape and dtype."""

    shape: Any
    dtype: Any = torch.float32

    def __post_init__(self) -> None:
        self.shape = tuple(self.shape)
        if isinstance(self.dtype, str):
            self.dtype = getattr(torch, self.dtype)

    @classmethod
    def is_bounded(cls) -> bool:
        return False

    @property
    def dtype_str(self) -> str:
        return str(self.dtype).removeprefix("torch.")


@dataclass(eq=False)
class BoundedTensorSpec(TensorSpec):
    """A tensor spec with inclusive bounds."""

    minimum: Any = 0
    maximum: Any = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.minimum, self.maximum = (np.array(bound, self.dtype_str) for bound in (self.minimum, self.maximum))

    @classmethod
    def is_bounded(cls) -> bool:
        return True

    def __eq__(self, other: Any) -> bool:
        return (
            super().__eq__(other) is True
            and np.allclose(self.minimum, other.minimum)
            and np.allclose(self.maximum, other.maximum)
        )

    __hash__ = None  # type: ignore[assignment]
