"""Pickles objects into lists of buffers, arrays out of band (pickle protocol 5)."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from remuda._wire import by_value

Parts: TypeAlias = Sequence[Any]  # bytes-like; the first is the pickle, the rest its buffers


def dump(value: Any) -> Parts:
    """Pickles `value`; the buffers of its arrays are not copied, so use them before they change."""
    try:
        return _dump_with(pickle.dumps, value)
    except (
        Exception
    ):  # a lambda, or a class or function that is not found by its name: cloudpickle can, or says why not
        return _dump_with(by_value.dumps, value)


def dump_for_worker(value: Any) -> Parts:
    """As `dump`, but the classes and functions of this process's `__main__` travel too: a worker's is another."""
    parts = dump(value)
    return _dump_with(by_value.dumps, value) if b"__main__" in parts[0] else parts


def dump_whole(value: Any) -> bytes:
    """Pickles `value` in one piece, arrays and all, so that it may change afterwards. The classes and functions of this
    process's `__main__` travel too: another one's is another."""
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
    """Pickles as cloudpickle does, but refuses open files, of which that would make copies in memory."""

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
    """As `load`, of what an env has made. Raises an Exception even where unpickling it raises SystemExit or the like,
    which is not for an env to end us by; KeyboardInterrupt is the user's, and what signal handlers raise the program's.
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
    """Whether a function of an env's that has raised is to blame for it: it raises each time.

    Otherwise a signal handler of the program has raised, which happened to run meanwhile.
    """
    try:
        function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return True
    return False
