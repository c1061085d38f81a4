"""Checks whether a fork server is outdated because a module that it imported was edited or reloaded."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda._backends.forkserver.messages import Module


class Imports:
    """The modules that a fork server has imported, and the modules with the same names in this process.

    They differ if a file was edited, or if this process has reloaded a module, as notebooks do.
    """

    def __init__(self) -> None:
        self._modules: dict[str, tuple[Module, _Own | None]] = {}

    def add(self, modules: Iterable[Module]) -> None:
        """Adds modules that the server has just imported."""
        for module in modules:
            self._modules[module.name] = (module, _own(module.name))

    def are_outdated(self) -> bool:
        for name, (module, before) in list(self._modules.items()):  # a copy: another thread may add modules
            if not _is_as_it_was(module):
                return True
            now = _own(name)
            if before is not None and now is not None and not now.is_same(before):
                return True
            if before is None and now is not None:  # this process may have imported the module since
                if (path := getattr(now.spec, "origin", None)) and os.path.abspath(path) != module.path:
                    return True
                self._modules[name] = (module, now)
        return False


@dataclass(frozen=True)
class _Own:
    """A module of this process. The reference to it is weak, so that a notebook can free its memory."""

    module: Callable[[], Any]
    spec: Any  # shows a reload, which makes a new spec

    def is_same(self, other: _Own) -> bool:
        return self.module() is other.module() and self.spec is other.spec


def _own(name: str) -> _Own | None:
    module = sys.modules.get(name)
    if module is None:
        return None
    try:
        reference: Callable[[], Any] = weakref.ref(module)
    except TypeError:  # an object in `sys.modules` may not allow weak references
        reference = lambda: module  # noqa: E731
    return _Own(reference, getattr(module, "__spec__", None))


def _is_as_it_was(module: Module) -> bool:
    try:
        stat = os.stat(module.path)
    except OSError:
        return True  # no edit: the file was removed, and not replaced yet
    return (stat.st_mtime_ns, stat.st_size) == (module.mtime_ns, module.size)
