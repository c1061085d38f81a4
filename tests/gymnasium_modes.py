"""Gymnasium's autoreset modes, and its vector envs in them, whatever Gymnasium the tests are run with.

Gymnasium 1.0, the oldest that remuda takes, resets in the next step and has no name for that. What cannot be compared
with it is skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv

from remuda.gymnasium.autoreset import POOL_MODE

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
