"""Times as people read them."""

from __future__ import annotations


def span(seconds: float) -> str:
    """A time in the unit that fits."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds < 1000 / factor:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
