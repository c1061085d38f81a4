"""Checks of timeouts."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


def check_timeout(timeout: Any, name: str = "timeout") -> None:
    if timeout is not None and (not isinstance(timeout, Real) or math.isnan(timeout)):
        raise TypeError(f"expected {name} to be a number of seconds or None, got {timeout!r}")
