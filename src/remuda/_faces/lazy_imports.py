"""Lazy imports of a face: workers import their side of it without the learner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from remuda._faces.frameworks import FRAMEWORKS


def lazily(
    package: str, names: Collection[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and the ``__dir__`` of a face.

    Args:
        package: The face's package.
        names: The names that it exports.
        modules: The module of each name; all other names are in ``errors``.
    """
    framework = FRAMEWORKS[package]

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with framework.needed():
            return getattr(import_module(f"{package}.{modules.get(name, 'errors')}"), name)

    def listed() -> list[str]:
        """Leaves out the names that cannot be imported, because ``help()`` and the like get all that are listed."""
        present = vars(sys.modules[package])
        return sorted({*present, *names} if framework.is_installed else present)

    return load, listed
