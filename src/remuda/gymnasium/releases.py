"""Names of Gymnasium that older releases lack: 0.29 has another base class and fewer functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import gymnasium
from gymnasium import vector
from gymnasium.core import ActType, ObsType

__all__ = ["IS_0_29", "AutoresetMode", "VectorEnv"]

IS_0_29 = gymnasium.__version__.startswith("0.")
"""Whether this is Gymnasium 0.29, whose vector envs reset in the same step and have other infos than those of 1.x."""

if TYPE_CHECKING or not IS_0_29:
    from gymnasium.vector import VectorEnv
else:
    ArrayType = TypeVar("ArrayType")

    class VectorEnv(vector.VectorEnv, Generic[ObsType, ActType, ArrayType]):
        """Gymnasium 0.29's base class, with type parameters and with the attributes that its constructor sets."""

        is_vector_env = True
        viewer: Any = None


if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode
else:
    try:
        from gymnasium.vector import AutoresetMode
    except ImportError:  # Gymnasium 1.0 has only next-step autoreset, and no enum
        from enum import Enum

        class AutoresetMode(Enum):
            """The time at which a vector env resets an env after the end of its episode."""

            NEXT_STEP = "NextStep"
            SAME_STEP = "SameStep"
            DISABLED = "Disabled"
