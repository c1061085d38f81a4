"""The duration and seed of `make soak`, and the number of Hypothesis examples: few and fixed in normal runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

# The duration of `make soak`; 0 in normal runs.
MINUTES = float(os.environ.get("REMUDA_SOAK_MINUTES", "0"))
SEED = int(os.environ.get("REMUDA_SOAK_SEED", "0"))


# Marks a test that takes a minute, and beside which a short one remains. `make nightly` runs it.
nightly = pytest.mark.skipif(not MINUTES, reason="a part of make nightly")


def draws(examples: int, **more: Any) -> Any:
    """Returns settings with this number of examples, which `make soak` multiplies by its minutes."""
    from hypothesis import settings  # workers import this module, and need no Hypothesis

    return settings(max_examples=round(examples * (1 + MINUTES)), derandomize=not MINUTES, deadline=None, **more)
