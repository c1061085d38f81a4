"""Finds out whether a fork server is outdated: whether a module that it has imported has been edited or reloaded."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda._backends.forkserver.messages import Module


class Imports:
    """The modules of a fork server, beside those of this process.

    They differ when a file was edited since, or when this process has loaded a module once more, as notebooks do.
    """

    def __init__(self) -> None:
        self._modules: dict[str, tuple[Module, _Own | None]] = {}

    def add(self, modules: Iterable[Module]) -> None:
        """The server has just imported these."""
        for module in modules:
            self._modules[module.name] = (module, _own(module.name))

    def are_outdated(self) -> bool:
        for name, (module, before) in list(self._modules.items()):  # another thread may add some
            if not _is_as_it_was(module):
                return True
            now = _own(name)
            if before is not None and now is not None and not now.is_same(before):
                return True
            if before is None and now is not None:  # it was imported here later
                if (path := getattr(now.spec, "origin", None)) and os.path.abspath(path) != module.path:
                    return True
                self._modules[name] = (module, now)
        return False


@dataclass(frozen=True)
class _Own:
    """A module of this process. It is not kept alive, so that a notebook can free its memory."""

    module: Callable[[], Any]
    spec: Any  # each reload makes a new one

    def is_same(self, other: _Own) -> bool:
        return self.module() is other.module() and self.spec is other.spec


def _own(name: str) -> _Own | None:
    module = sys.modules.get(name)
    if module is None:
        return None
    try:
        reference: Callable[[], Any] = weakref.ref(module)
    except TypeError:  # something else was put in its place
        reference = lambda: module  # noqa: E731
    return _Own(reference, getattr(module, "__spec__", None))


def _is_as_it_was(module: Module) -> bool:
    try:
        stat = os.stat(module.path)
    except OSError:
        return True  # it was removed, and there is no other one yet
    return (stat.st_mtime_ns, stat.st_size) == (module.mtime_ns, module.size)
