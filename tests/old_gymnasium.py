"""What tests use of Gymnasium that its 1.0, the oldest that remuda takes, does not have.

It resets in the next step and has no name for that, its `Discrete` is of int64, and a key "final_obs" in infos is like
any other to it. What cannot be had there is skipped, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from remuda.gymnasium.autoreset import POOL_MODE

# -- autoreset modes -------------------------------------------------------------------------------------

GYMNASIUM_MODES = {ours: theirs for theirs, ours in POOL_MODE.items()}
HAS_MODES = hasattr(gymnasium.vector, "AutoresetMode")


def require_mode(mode: str) -> None:
    """Skips a test that needs a vector env of Gymnasium's in this mode, where there is none."""
    if not HAS_MODES and mode != "next_step":
        pytest.skip("Gymnasium 1.0 has next-step autoreset alone")


def in_mode(mode: str) -> dict[str, Any]:
    """The keywords that put a vector env of Gymnasium's into this mode, by its name in a pool. For workers too."""
    return {"autoreset_mode": GYMNASIUM_MODES[mode]} if HAS_MODES else {}


def sync_vector_env(env_fns: Sequence[Any], mode: str) -> SyncVectorEnv:
    """Gymnasium's own in this mode, by its name in a pool. Skips the test where there is none."""
    require_mode(mode)
    return SyncVectorEnv(env_fns, **in_mode(mode))


# The key of infos that an array of objects stands for.
FINAL_OBS = ("final_obs",) if HAS_MODES else ()


# -- dtypes of Discrete ----------------------------------------------------------------------------------

HAS_DTYPES = "dtype" in inspect.signature(spaces.Discrete).parameters
needs_dtypes = pytest.mark.skipif(not HAS_DTYPES, reason="Discrete of Gymnasium 1.0 is of int64")


def discrete(n: int, dtype: Any, start: int = 0) -> spaces.Discrete:
    """Of int64 where there is nothing else: a test that sees the difference `needs_dtypes`."""
    return spaces.Discrete(n, start=start, **({"dtype": dtype} if HAS_DTYPES else {}))
