"""Gymnasium's enum of autoreset modes, and its words for options of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["WORDS", "AutoresetMode"]

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


WORDS = {
    "autoreset": "autoreset_mode",
    "start_method": "context",
    "'next_step'": "'NextStep'",
    "'same_step'": "'SameStep'",
    "'disabled'": "'Disabled'",
}
"""Gymnasium's words for options and values of the pool, for `in_words_of`."""
