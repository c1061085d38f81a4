"""The option `max_worker_memory`: what a caller writes, in bytes."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("", 1024), ("IB", 1024), ("B", 1000))
}


def memory_limit(asked: Any) -> int | None:
    """Bytes; None for no limit.

    Raises:
        TypeError, ValueError: It is no size.
    """
    if asked is None:
        return None
    size = asked
    if isinstance(asked, str):
        written = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?(?:I?B)?)\s*", asked, re.IGNORECASE)
        unit = None if written is None else _UNITS.get(written[2].upper().removeprefix("B"))
        size = 0 if written is None or unit is None else int(float(written[1]) * unit)
    elif not isinstance(asked, int) or isinstance(asked, bool):
        raise TypeError(f"expected max_worker_memory to be bytes, a text such as '2GiB', or None, got {asked!r}")
    if size < 1:
        raise ValueError(f"expected max_worker_memory such as 2 * 2**30, '2GiB' or '500MB', got {asked!r}")
    return int(size)
