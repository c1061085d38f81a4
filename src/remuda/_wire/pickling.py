"""Pickles objects into lists of buffers, arrays out of band (pickle protocol 5)."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from remuda._wire import by_value

Parts: TypeAlias = Sequence[Any]  # bytes-like; the first is the pickle, the rest its buffers
FlaggedParts: TypeAlias = "tuple[int, Parts | None] | None"  # flags of a row and its pickle; None: the row has neither

_HEAD = np.dtype([("flags", np.uint32), ("parts", np.uint32)])  # for each row of a bundle


def dump(value: Any) -> Parts:
    """Pickles `value`; the buffers of its arrays are not copied, so use them before they change."""
    try:
        return _dump_with(pickle.dumps, value)
    except Exception:  # a lambda, or a class that is not found by its name: cloudpickle can, or its error is clearer
        return _dump_with(by_value.dumps, value)


def dump_for_worker(value: Any) -> Parts:
    """Pickles like `dump`, but by value what is from `__main__`, because a worker has another `__main__`."""
    parts = dump(value)
    return _dump_with(by_value.dumps, value) if b"__main__" in parts[0] else parts


def dump_whole(value: Any) -> bytes:
    """Pickles `value` in one piece, arrays and all, so that it may change afterwards.

    What is from `__main__` is pickled by value, because another process has another `__main__`.
    """
    try:
        whole = pickle.dumps(value, protocol=5)
        if b"__main__" not in whole:  # where a pickle refers to that, it names it
            return whole
    except Exception:  # as in `dump`
        pass
    file = io.BytesIO()
    RefusingFiles(file).dump(value)
    return file.getvalue()


class RefusingFiles(by_value.Pickler):
    """Pickles like cloudpickle, but refuses open files, which cloudpickle would copy into memory."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdin, sys.stdout, sys.stderr):
            raise pickle.PicklingError(f"an open file cannot be pickled: {value!r}")
        return super().reducer_override(value)


def _dump_with(dumps: Callable[..., bytes], value: Any) -> Parts:
    buffers: list[pickle.PickleBuffer] = []
    head = dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def load(parts: Parts) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


def load_from_env(parts: Parts) -> Any:
    """Loads an env's pickle like `load`. If unpickling raises SystemExit or the like, raises UnpicklingError instead.

    KeyboardInterrupt, and what a signal handler raises meanwhile, are raised as they are.
    """
    try:
        return load(parts)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not raises_again(lambda: load(parts)):
            raise
        raise pickle.UnpicklingError(f"unpickling it raised {type(error).__name__}") from error


def raises_again(function: Callable[[], object]) -> bool:
    """Whether a function that has raised raises again.

    Otherwise a signal handler raised the first time, which happened to run meanwhile.
    """
    try:
        function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return True
    return False


def bundle(rows: Sequence[FlaggedParts]) -> Parts:
    """Joins the flags and pickles of a vector env's rows into one message: a head, and then the parts of each row."""
    head = np.array([(0, 0) if row is None else (row[0], len(row[1] or ())) for row in rows], _HEAD)
    return [head.tobytes(), *(part for row in rows if row is not None for part in row[1] or ())]


def unbundle(parts: Parts, rows: int) -> list[FlaggedParts]:
    """Returns what `bundle` was given for so many rows, unpickling none. Raises ValueError for other messages."""
    head = np.frombuffer(parts[0], _HEAD)
    if len(head) != rows or int(head["parts"].sum(dtype=np.int64)) != len(parts) - 1:
        raise ValueError(f"expected the matter of {rows} rows, got {len(head)} and {len(parts) - 1} parts")
    rest = iter(parts[1:])
    return [(flags, list(islice(rest, n)) or None) if flags or n else None for flags, n in head.tolist()]
