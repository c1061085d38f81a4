"""How many examples are drawn: few among the other tests, the same in each run; in `make soak` many, and others."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

MINUTES = float(os.environ.get("REMUDA_SOAK_MINUTES", "0"))


def draws(examples: int, **more: Any) -> settings:
    """Settings of Hypothesis: as many examples, and in `make soak` as many more for each minute."""
    return settings(max_examples=round(examples * (1 + MINUTES)), derandomize=not MINUTES, deadline=None, **more)
