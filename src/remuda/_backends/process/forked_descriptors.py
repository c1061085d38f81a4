"""Closes what a forked worker has inherited of its parent's pools: descriptors and mappings."""

from __future__ import annotations

import weakref
from typing import Protocol


class Holder(Protocol):
    """Holds descriptors that are this process's alone."""

    def drop_descriptors(self) -> None:
        """In a forked child: closes the child's copies."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def register(holder: Holder) -> None:
    _holders.add(holder)


def drop_inherited() -> None:
    """In a worker that was forked a moment ago: lets go of all pools of its parent, its own among them."""
    for holder in list(_holders):
        holder.drop_descriptors()
