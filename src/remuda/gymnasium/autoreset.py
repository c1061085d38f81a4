"""Gymnasium's enum of autoreset modes, and the pool's name for each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

__all__ = ["POOL_MODE", "WORDS", "AutoresetMode"]

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


POOL_MODE: dict[AutoresetMode, Literal["next_step", "same_step", "disabled"]] = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "disabled",
}

WORDS = {
    "autoreset": "autoreset_mode",
    "start_method": "context",
    **{repr(ours): repr(theirs.value) for theirs, ours in POOL_MODE.items()},
}
"""Gymnasium's words for options and values of the pool, for `in_words_of`."""
