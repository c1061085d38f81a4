"""Pickles objects into lists of buffers. Arrays have buffers of their own (pickle protocol 5)."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from remuda import _core
from remuda._wire import by_value

Buffers: TypeAlias = Sequence[Any]  # bytes-like objects: the pickle, then its buffers.
FlaggedParts: TypeAlias = "tuple[int, Buffers | None] | None"  # a row's flags and pickled data, if any

_HEAD = np.dtype([("flags", np.uint32), ("parts", np.uint32)])  # a row's entry in the head of a bundle


def dump(value: Any) -> Buffers:
    """Pickles `value`. The buffers of its arrays are not copied: use them before the arrays change.

    Objects of `__main__` are pickled by value, because another process has another `__main__`; see `share_main`.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = _pickle(value, by_value.Pickler, buffers)
    return [head, *(buffer.raw() for buffer in buffers)]


def dump_whole(value: Any) -> bytes:
    """Pickles `value` as `dump` does, but into one piece, with copies of its arrays."""
    return _pickle(value, RefusingFiles, None)


def _pickle(value: Any, kind: type[by_value.Pickler], buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """Returns the pickle, and adds its buffers to `buffers`; None: they are a part of it. Uses `kind` if needed."""
    add = None if buffers is None else buffers.append
    with suppress(Exception):  # cloudpickle accepts more than pickle, for example a lambda
        pickled = pickle.dumps(value, protocol=5, buffer_callback=add)
        if _shares_main or not _core.contains(pickled, b"__main__"):  # a reference to `__main__` contains this name
            return pickled
    if buffers is not None:
        buffers.clear()
    file = io.BytesIO()
    kind(file, 5, add).dump(value)
    return file.getvalue()


_shares_main = False


def share_main() -> None:
    """Notes that this worker was forked from the pool's process, so both have the same `__main__`."""
    global _shares_main  # noqa: PLW0603 - it is a fact about the process
    _shares_main = True


class RefusingFiles(by_value.Pickler):
    """Pickles like cloudpickle, but refuses open files, which cloudpickle would copy into memory."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdin, sys.stdout, sys.stderr):
            raise pickle.PicklingError(f"an open file cannot be pickled: {value!r}")
        return super().reducer_override(value)


def load(parts: Buffers) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


def bundle(rows: Sequence[FlaggedParts]) -> Buffers:
    """Joins the flags and pickles of a vector env's rows into one message: a head, and then the buffers of each row."""
    head = np.array([(0, 0) if row is None else (row[0], len(row[1] or ())) for row in rows], _HEAD)
    return [head.tobytes(), *(part for row in rows if row is not None for part in row[1] or ())]


def unbundle(parts: Buffers, rows: int) -> list[FlaggedParts]:
    """Splits a message of `bundle` into its rows, still pickled. Raises ValueError if it does not have `rows` rows."""
    head = np.frombuffer(parts[0], _HEAD)
    if len(head) != rows or int(head["parts"].sum(dtype=np.int64)) != len(parts) - 1:
        raise ValueError(f"expected the matter of {rows} rows, got {len(head)} and {len(parts) - 1} parts")
    rest = iter(parts[1:])
    return [(flags, list(islice(rest, n)) or None) if flags or n else None for flags, n in head.tolist()]
