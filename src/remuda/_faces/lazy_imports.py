"""Imports a face's names when they are first used, because a worker needs only the face's worker module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from remuda._faces.frameworks import FRAMEWORKS


def lazily(
    package: str, names: Collection[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions ``__getattr__`` and ``__dir__`` for a face's package.

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
        """Returns only the names that can be imported: ``help()`` and similar tools import each listed name."""
        present = vars(sys.modules[package])
        return sorted({*present, *names} if framework.is_installed else present)

    return load, listed
