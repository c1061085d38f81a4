"""Puts the pickled matter of a vector env's rows into one blob, from which each row's can be had without unpickling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np

from remuda._wire.pickling import Parts

# What goes with a row: its flags, and its own blob; None where there is nothing of either.
RowMatter: TypeAlias = "tuple[int, Parts | None] | None"

_HEAD = np.dtype([("flags", np.uint32), ("parts", np.uint32)])  # of each row


def bundle(rows: Sequence[RowMatter]) -> Parts:
    """One blob for all rows: a head, and then the parts of each."""
    head = np.array([(0, 0) if row is None else (row[0], len(row[1] or ())) for row in rows], _HEAD)
    return [head.tobytes(), *(part for row in rows if row is not None for part in row[1] or ())]


def unbundle(parts: Parts, rows: int) -> list[RowMatter]:
    """What `bundle` was given, for so many rows. Raises ValueError for what it has not made."""
    head = np.frombuffer(parts[0], _HEAD)
    if len(head) != rows or int(head["parts"].sum(dtype=np.int64)) != len(parts) - 1:
        raise ValueError(f"expected the matter of {rows} rows, got {len(head)} and {len(parts) - 1} parts")
    rest = iter(parts[1:])
    return [(flags, list(islice(rest, n)) or None) if flags or n else None for flags, n in head.tolist()]
