"""Frees locks, calls functions and closes descriptors in forked children, which have only one thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

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
