"""Checks whether a fork server is outdated because a module that it imported was edited or reloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from remuda._backends.forkserver.messages import Module


class Imports:
    """The modules that a fork server has imported, and the modules with the same names in this process.

    They differ if a file was edited, or if this process has reloaded a module, as notebooks do.
    """

    def __init__(self) -> None:
        self._modules: dict[str, tuple[Module, Any]] = {}  # by name: the module, and its spec in this process

    def add(self, modules: Iterable[Module]) -> None:
        """Adds modules that the server has just imported."""
        for module in modules:
            self._modules[module.name] = (module, _own_spec(module.name))

    def are_outdated(self) -> bool:
        for name, (module, before) in list(self._modules.items()):  # a copy: another thread may add modules
            if not _is_as_it_was(module):
                return True
            now = _own_spec(name)
            if before is not None and now is not None and now is not before:
                return True
            if before is None and now is not None:  # this process may have imported the module since
                if (path := getattr(now, "origin", None)) and os.path.abspath(path) != module.path:
                    return True
                self._modules[name] = (module, now)
        return False


def _own_spec(name: str) -> Any:
    """Returns the spec of a module of this process, if it has the module. A reload makes a new spec."""
    return getattr(sys.modules.get(name), "__spec__", None)


def _is_as_it_was(module: Module) -> bool:
    try:
        stat = os.stat(module.path)
    except OSError:
        return True  # no edit: the file was removed, and not replaced yet
    return (stat.st_mtime_ns, stat.st_size) == (module.mtime_ns, module.size)
