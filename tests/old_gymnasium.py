"""Replacements for features that Gymnasium 1.0 lacks, the oldest release of the engine's tests.

Gymnasium 1.0 has only next-step autoreset, without a name for it. Its `Discrete` has the dtype int64, and it treats a
key "final_obs" in infos like any other. Tests that need more are skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from remuda._wire.autoreset import AUTORESET_MODES
from remuda.gymnasium.releases import AutoresetMode

# -- autoreset modes -------------------------------------------------------------------------------------

GYMNASIUM_MODES = {name: AutoresetMode(mode.gymnasium) for name, mode in AUTORESET_MODES.items() if mode.gymnasium}
HAS_MODES = hasattr(gymnasium.vector, "AutoresetMode")


def require_mode(mode: str) -> None:
    """Skips a test that needs Gymnasium's vector envs in this mode if they have only next-step autoreset."""
    if not HAS_MODES and mode != "next_step":
        pytest.skip("Gymnasium 1.0 has next-step autoreset alone")


def in_mode(mode: str) -> dict[str, Any]:
    """Returns the keywords that put Gymnasium's vector env into this mode, given by its name in a pool. Workers call it
    too.
    """
    return {"autoreset_mode": GYMNASIUM_MODES[mode]} if HAS_MODES else {}


def sync_vector_env(env_fns: Sequence[Any], mode: str) -> SyncVectorEnv:
    """Returns Gymnasium's SyncVectorEnv in this mode of a pool. Skips the test if it lacks the mode."""
    require_mode(mode)
    return SyncVectorEnv(env_fns, **in_mode(mode))


# The key under which infos have terminal observations in an array of objects.
FINAL_OBS = ("final_obs",) if HAS_MODES else ()


# -- dtypes of Discrete ----------------------------------------------------------------------------------

HAS_DTYPES = "dtype" in inspect.signature(spaces.Discrete).parameters
needs_dtypes = pytest.mark.skipif(not HAS_DTYPES, reason="Discrete of Gymnasium 1.0 is of int64")


def discrete(n: int, dtype: Any, start: int = 0) -> spaces.Discrete:
    """Returns a Discrete with this dtype, or with int64 on Gymnasium 1.0. Tests that need it use `needs_dtypes`."""
    return spaces.Discrete(n, start=start, **({"dtype": dtype} if HAS_DTYPES else {}))
