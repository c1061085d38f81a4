"""Frees locks, calls functions and closes descriptors in forked children, which have only one thread.

Also ends children that code of the user forks, and that come back from this code.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from remuda import _core

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


class Holder(Protocol):
    """An object with descriptors or mappings that forked children must not keep."""

    def drop_descriptors(self) -> None:
        """Closes a forked child's copies of the descriptors and mappings."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def run_in_children(callback: Callable[[], object]) -> None:
    """Calls `callback` in every child that this process forks from now on, before `os.fork` returns there."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=callback)


def fork_safe_lock() -> Any:
    """Returns a `threading.RLock` that is free in a forked child if another thread held it at the fork.

    The child cannot wait for a thread that it does not have. The guarded data may be half changed there, so it must
    belong to one process: keyed by process id, or not used in children.
    """
    lock = threading.RLock()  # a bare lock, because in a wrapper an interrupt could come between `acquire` and `with`
    _locks.add(lock)
    return lock


def _free_locks() -> None:
    for lock in list(_locks):
        if lock.acquire(blocking=False):  # the lock was free, or the forking thread holds it
            lock.release()
        else:
            lock._at_fork_reinit()


run_in_children(_free_locks)


def register_holder(holder: Holder) -> None:
    """Makes workers that are forked from this process close the holder's descriptors and mappings."""
    _holders.add(holder)


def drop_inherited() -> None:
    """Closes the descriptors and mappings of pools that a forked worker has inherited from its parent."""
    for holder in list(_holders):
        holder.drop_descriptors()


class OneProcess:
    """A `with` block for code of the user, such as an env's, that only one process leaves.

    If the code forks, the child ends when it comes to the end of the block. Otherwise two processes would continue as
    one worker. (A function that calls the code would be seen in the user's tracebacks.)
    """

    def __enter__(self) -> None:
        self._forks = _core.fork_count()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if _core.fork_count() != self._forks:
            end_child(error)


def end_child(error: BaseException | None) -> NoReturn:
    """Ends a forked child as `multiprocessing` does after its function has raised `error` (None: has returned)."""
    status = 1
    try:
        if error is None:
            status = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
        flush_output()
    finally:
        os._exit(status & 0xFF)  # without the parent's exit handlers


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the stream is closed, or a pipe without a reader
